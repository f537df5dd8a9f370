// Command scheduler-filters answers what kube-scheduler's own filter plugins say of a pod and each
// node. It reads one case after the other as JSON from standard input: the pod, and the nodes, pods
// and namespaces of the cluster. It writes an answer to each as a line of JSON: by the name of a
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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	apicore "k8s.io/kubernetes/pkg/apis/core/v1"
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
	Pod        *v1.Pod         `json:"pod"`
	Nodes      []*v1.Node      `json:"nodes"`
	Pods       []*v1.Pod       `json:"pods"`
	Namespaces []*v1.Namespace `json:"namespaces"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// The filters of the default profile, in its order, that need nothing but pods, nodes and namespaces.
var filters = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity,
}

// listed is what plugins see of the cluster: it changes with each case.
type listed struct{ fwk.SharedLister }

func main() {
	metrics.Register()
	if err := answerAll(context.Background(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func answerAll(ctx context.Context, in io.Reader, out io.Writer) error {
	cluster := &listed{cache.NewEmptySnapshot()}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	filtering, err := newFramework(ctx, cluster, factory)
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
		answer, err := answer(ctx, filtering, cluster, factory, one)
		if err != nil {
			return err
		}
		if err := encoder.Encode(answer); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

func newFramework(ctx context.Context, cluster fwk.SharedLister, factory informers.SharedInformerFactory) (framework.Framework, error) {
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
		runtime.WithClientSet(fake.NewClientset()),
		runtime.WithInformerFactory(factory),
		runtime.WithSnapshotSharedLister(cluster),
		runtime.WithEventRecorder(&events.FakeRecorder{}),
	)
}

func answer(ctx context.Context, filtering framework.Framework, cluster *listed, factory informers.SharedInformerFactory, one scenario) (map[string]refusal, error) {
	known := factory.Core().V1().Namespaces().Informer().GetIndexer()
	objects := make([]any, 0, len(one.Namespaces))
	for _, namespace := range one.Namespaces {
		objects = append(objects, namespace)
	}
	if err := known.Replace(objects, ""); err != nil {
		return nil, err
	}
	apicore.SetObjectDefaults_Pod(one.Pod)
	for _, pod := range one.Pods {
		apicore.SetObjectDefaults_Pod(pod)
	}
	for _, node := range one.Nodes {
		apicore.SetObjectDefaults_Node(node)
	}
	cluster.SharedLister = cache.NewSnapshot(one.Pods, one.Nodes)
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
