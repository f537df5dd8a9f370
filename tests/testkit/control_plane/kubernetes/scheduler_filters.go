// Command scheduler-filters answers what kube-scheduler's own filter plugins say of a pod and each
// node. It reads one case after the other as JSON from standard input: the pod, and the nodes, pods,
// namespaces and volumes of the cluster. It writes an answer to each as a line of JSON: by the name of a
// node, the plugin that refuses it and the reasons that the plugin gives. A node that takes the pod
// is not there.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	apicore "k8s.io/kubernetes/pkg/apis/core/v1"
	apistorage "k8s.io/kubernetes/pkg/apis/storage/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type scenario struct {
	Pod        *v1.Pod                     `json:"pod"`
	Nodes      []*v1.Node                  `json:"nodes"`
	Pods       []*v1.Pod                   `json:"pods"`
	Namespaces []*v1.Namespace             `json:"namespaces"`
	Claims     []*v1.PersistentVolumeClaim `json:"claims"`
	Volumes    []*v1.PersistentVolume      `json:"volumes"`
	Classes    []*storage.StorageClass     `json:"classes"`
	Drivers    []*storage.CSIDriver        `json:"drivers"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// The filters of the default profile, in its order, without limits of volumes and claims for devices.
var filters = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.VolumeRestrictions, names.VolumeBinding,
	names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity,
}

// listed is what plugins see of the pods and nodes.
type listed struct{ fwk.SharedLister }

func main() {
	metrics.Register()
	if err := answerAll(context.Background(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func answerAll(ctx context.Context, in io.Reader, out io.Writer) error {
	cluster := &listed{cache.NewEmptySnapshot()}
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	filtering, err := newFramework(ctx, cluster, factory, client)
	if err != nil {
		return err
	}
	decoder, writer := json.NewDecoder(bufio.NewReader(in)), bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		var one scenario
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		setDefaults(one)
		cluster.SharedLister = cache.NewSnapshot(one.Pods, one.Nodes)
		if err := list(factory, one); err != nil {
			return err
		}
		found, err := answer(ctx, filtering, cluster, one)
		if err != nil {
			return err
		}
		if err := encoder.Encode(found); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

// list makes the objects of a scenario those that informers know. The informers do not run: plugins
// read their stores.
func list(factory informers.SharedInformerFactory, one scenario) error {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	return errors.Join(
		replace(core.Namespaces().Informer(), one.Namespaces),
		replace(core.PersistentVolumeClaims().Informer(), one.Claims),
		replace(core.PersistentVolumes().Informer(), one.Volumes),
		replace(storage.StorageClasses().Informer(), one.Classes),
		replace(storage.CSIDrivers().Informer(), one.Drivers),
	)
}

func replace[T any](informer toolscache.SharedIndexInformer, objects []T) error {
	var untyped []any
	for _, object := range objects {
		untyped = append(untyped, object)
	}
	return informer.GetIndexer().Replace(untyped, "")
}

func newFramework(ctx context.Context, cluster fwk.SharedLister, factory informers.SharedInformerFactory, client kubernetes.Interface) (framework.Framework, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	needed := append([]string{names.PrioritySort, names.DefaultBinder}, filters...)
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(
		profile.Plugins.MultiPoint.Enabled,
		func(plugin config.Plugin) bool { return !slices.Contains(needed, plugin.Name) },
	)
	return runtime.NewFramework(
		ctx, plugins.NewInTreeRegistry(), &profile,
		runtime.WithClientSet(client),
		runtime.WithInformerFactory(factory),
		runtime.WithSnapshotSharedLister(cluster),
		runtime.WithEventRecorder(&events.FakeRecorder{}),
	)
}

func answer(ctx context.Context, filtering framework.Framework, cluster fwk.SharedLister, one scenario) (map[string]refusal, error) {
	refused := map[string]refusal{}
	state := framework.NewCycleState()
	only, status, _ := filtering.RunPreFilterPlugins(ctx, state, one.Pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, fmt.Errorf("%s: %w", status.Plugin(), status.AsError())
	}
	for _, node := range one.Nodes {
		if status.IsSuccess() && (only.AllNodes() || only.NodeNames.Has(node.Name)) {
			info, err := cluster.NodeInfos().Get(node.Name)
			if err != nil {
				return nil, err
			}
			if found := filtering.RunFilterPlugins(ctx, state, one.Pod, info); !found.IsSuccess() {
				refused[node.Name] = refusal{found.Plugin(), found.Reasons()}
			}
		} else if status.IsSuccess() {
			refused[node.Name] = refusal{names.NodeAffinity, nil}
		} else {
			refused[node.Name] = refusal{status.Plugin(), status.Reasons()}
		}
	}
	return refused, nil
}

// setDefaults gives the objects the defaults that an API server gives them.
func setDefaults(one scenario) {
	for _, pod := range append(one.Pods, one.Pod) {
		apicore.SetObjectDefaults_Pod(pod)
	}
	for _, node := range one.Nodes {
		apicore.SetObjectDefaults_Node(node)
	}
	for _, claim := range one.Claims {
		apicore.SetObjectDefaults_PersistentVolumeClaim(claim)
	}
	for _, volume := range one.Volumes {
		apicore.SetObjectDefaults_PersistentVolume(volume)
	}
	for _, class := range one.Classes {
		apistorage.SetObjectDefaults_StorageClass(class)
	}
	for _, driver := range one.Drivers {
		apistorage.SetObjectDefaults_CSIDriver(driver)
	}
}
