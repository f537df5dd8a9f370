// Command scheduler-filters answers what kube-scheduler's own filter plugins say of a pod and each
// node. It reads one case after the other as JSON from standard input: the pod, and the nodes, pods,
// namespaces and volumes of the cluster; a pod without a node that names a nominated one is counted
// there. It writes an answer to each as a line of JSON: by the name of a node, the plugin that refuses
// it and the reasons that the plugin gives. A node that takes the pod is not there.
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
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
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

	CSINodes    []*storage.CSINode            `json:"csi_nodes"`
	Attachments []*storage.VolumeAttachment   `json:"attachments"`
	Capacities  []*storage.CSIStorageCapacity `json:"capacities"`
	Nominated   []*v1.Pod                     `json:"nominated"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// The filters of the default profile, in its order, without claims for devices.
var filters = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits,
	names.VolumeBinding, names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity,
	names.NodeDeclaredFeatures,
}

// listed is what plugins see of the pods and nodes.
type listed struct{ fwk.SharedLister }

// nominated is what the framework sees of pods for which it keeps room.
type nominated struct {
	fwk.PodNominator
	byNode map[string][]fwk.PodInfo
}

func (n *nominated) NominatedPodsForNode(node string) []fwk.PodInfo { return n.byNode[node] }

func (n *nominated) replace(pods []*v1.Pod) error {
	n.byNode = map[string][]fwk.PodInfo{}
	for _, pod := range pods {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return err
		}
		node := pod.Status.NominatedNodeName
		n.byNode[node] = append(n.byNode[node], info)
	}
	return nil
}

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
	waiting := &nominated{}
	filtering, err := newFramework(ctx, cluster, waiting, factory, client)
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
		if err := errors.Join(list(factory, one), waiting.replace(one.Nominated)); err != nil {
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
		replace(storage.CSINodes().Informer(), one.CSINodes),
		replace(storage.VolumeAttachments().Informer(), one.Attachments),
		replace(storage.CSIStorageCapacities().Informer(), one.Capacities),
	)
}

func replace[T any](informer toolscache.SharedIndexInformer, objects []T) error {
	var untyped []any
	for _, object := range objects {
		untyped = append(untyped, object)
	}
	return informer.GetIndexer().Replace(untyped, "")
}

func newFramework(ctx context.Context, cluster fwk.SharedLister, waiting fwk.PodNominator, factory informers.SharedInformerFactory, client kubernetes.Interface) (framework.Framework, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	csi := nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())
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
		runtime.WithPodNominator(waiting),
		runtime.WithSharedCSIManager(csi),
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
			found := filtering.RunFilterPluginsWithNominatedPods(ctx, state, one.Pod, info)
			if !found.IsSuccess() {
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
	for _, pod := range slices.Concat(one.Pods, one.Nominated, []*v1.Pod{one.Pod}) {
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
