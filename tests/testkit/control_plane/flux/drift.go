package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"helm.sh/helm/v4/pkg/action"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A difference between an object of the release and the one in the cluster.
type difference struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	// What Flux would do: `create` or `update`.
	Type string `json:"type"`
	// How to update it.
	Patch json.RawMessage `json:"patch"`
}

// drift does what internal/action/diff.go does: a dry run of server-side apply for each object of the
// newest revision, hooks not among them. It returns what that would change. With `correct` it then
// changes it, as with spec.driftDetection.mode: enabled.
func drift(config *action.Configuration, asked request, correct bool) (any, error) {
	last, err := lastRelease(config, asked)
	if err != nil {
		return nil, err
	}
	rest, err := config.RESTClientGetter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	cluster, err := client.New(rest, client.Options{})
	if err != nil {
		return nil, err
	}
	objects, err := utils.ReadObjects(strings.NewReader(last.Manifest))
	if err != nil {
		return nil, err
	}
	if err := normalize.UnstructuredListWithScheme(objects, cluster.Scheme()); err != nil {
		return nil, err
	}
	// What Helm adds to each object when it applies it.
	utils.SetCommonMetadata(objects, map[string]string{"app.kubernetes.io/managed-by": "Helm"},
		map[string]string{
			"meta.helm.sh/release-name":      last.Name,
			"meta.helm.sh/release-namespace": last.Namespace,
		})
	for _, object := range objects {
		namespaced, err := apiutil.IsObjectNamespaced(object, cluster.Scheme(), cluster.RESTMapper())
		if err != nil {
			return nil, err
		}
		if namespaced && object.GetNamespace() == "" {
			object.SetNamespace(last.Namespace)
		}
	}
	ctx := context.Background()
	found, err := jsondiff.UnstructuredList(ctx, cluster, objects,
		jsondiff.FieldOwner(fieldManager),
		jsondiff.ExclusionSelector{group + "/driftDetection": "disabled"},
		jsondiff.Rationalize(true),
		jsondiff.Graceful(true),
	)
	if err != nil {
		return nil, err
	}
	differences := []difference{}
	for _, each := range found {
		if each.Type != jsondiff.DiffTypeCreate && each.Type != jsondiff.DiffTypeUpdate {
			continue
		}
		patch, err := json.Marshal(each.Patch)
		if err != nil {
			return nil, err
		}
		object := each.DesiredObject
		kind := object.GetObjectKind().GroupVersionKind().Kind
		differences = append(differences, difference{
			Kind: kind, Name: object.GetName(), Namespace: object.GetNamespace(),
			Type: string(each.Type), Patch: patch,
		})
		if !correct {
			continue
		}
		if each.Type == jsondiff.DiffTypeCreate {
			err = cluster.Create(ctx, object, client.FieldOwner(fieldManager))
		} else {
			way := client.RawPatch(types.JSONPatchType, patch)
			err = cluster.Patch(ctx, object, way, client.FieldOwner(fieldManager))
		}
		if err != nil {
			return nil, err
		}
	}
	return differences, nil
}
