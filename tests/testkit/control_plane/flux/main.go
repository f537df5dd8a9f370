// Releases a chart as Flux's helm-controller does: by Helm's library with the options that it sets.
//
//	flux install|upgrade --kubeconfig FILE --namespace N --release R --chart FOLDER < VALUES
//	flux rollback|uninstall|drift|correct --kubeconfig FILE --namespace N --release R
//
// VALUES is a JSON object. It prints JSON: the release's revision, status and method of applying; of
// drift and correct, what differs (drift.go). A failure ends it with its text and status 1.
//
// The options are those of a HelmRelease that sets none of its own, by internal/action and
// api/v2/helmrelease_types.go of helm-controller 1.6.3, which uses Helm 4.2. What helm-controller
// does in addition and a chart does not notice is left out: it tries again after a failure, and polls
// while it waits, where Helm watches.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/fluxcd/pkg/ssa/utils"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const (
	fieldManager = "helm-controller"
	group        = "helm.toolkit.fluxcd.io"
	maxHistory   = 5
)

// A request is what the command line says.
type request struct {
	namespace, name, chart string
	// spec.upgrade.force
	force bool
	// spec.install.serverSideApply: false; upgrades do as the installation did.
	clientSide bool
	timeout    time.Duration
}

func main() {
	log.SetFlags(0)
	flags := flag.NewFlagSet("flux", flag.ExitOnError)
	var asked request
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	flags.StringVar(&asked.namespace, "namespace", "", "of the HelmRelease and of what it installs")
	flags.StringVar(&asked.name, "release", "", "name of the HelmRelease and of its release")
	flags.StringVar(&asked.chart, "chart", "", "folder of the chart")
	flags.BoolVar(&asked.force, "force", false, "replace what cannot be patched")
	flags.BoolVar(&asked.clientSide, "client-side", false, "install without server-side apply")
	flags.DurationVar(&asked.timeout, "timeout", 5*time.Minute, "of the whole action")
	if len(os.Args) < 2 {
		log.Fatal("which command?")
	}
	must(flags.Parse(os.Args[2:]))

	kube.ManagedFieldsManager = fieldManager
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig, getter.Namespace = kubeconfig, &asked.namespace
	config := action.NewConfiguration()
	must(config.Init(getter, asked.namespace, "secret"))

	var result any
	var err error
	switch os.Args[1] {
	case "install":
		result, err = install(config, asked)
	case "upgrade":
		result, err = upgrade(config, asked)
	case "rollback":
		result, err = rollback(config, asked)
	case "uninstall":
		result, err = uninstall(config, asked)
	case "drift":
		result, err = drift(config, asked, false)
	case "correct":
		result, err = drift(config, asked, true)
	default:
		log.Fatalf("unknown command %q", os.Args[1])
	}
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(result))
}

// install does what internal/action/install.go does. The chart has no folder crds/, which that would
// apply itself.
func install(config *action.Configuration, asked request) (any, error) {
	chart, values, err := asked.read()
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(config)
	install.ReleaseName = asked.name
	install.Namespace = asked.namespace
	install.ServerSideApply = !asked.clientSide
	install.ForceConflicts = install.ServerSideApply
	install.TakeOwnership = true
	install.WaitStrategy = kube.StatusWatcherStrategy
	install.WaitForJobs = true
	install.Timeout = asked.timeout
	install.Devel = true
	install.SkipCRDs = true
	install.PostRenderer = asked
	install.PostRenderStrategy = action.PostRenderStrategyCombined
	if _, err := install.RunWithContext(context.Background(), chart, values); err != nil {
		return nil, err
	}
	return asked.last(config)
}

// upgrade does what internal/action/upgrade.go does.
func upgrade(config *action.Configuration, asked request) (any, error) {
	chart, values, err := asked.read()
	if err != nil {
		return nil, err
	}
	last, err := lastRelease(config, asked)
	if err != nil {
		return nil, err
	}
	serverSide := isServerSide(last)
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace = asked.namespace
	upgrade.ServerSideApply = strconv.FormatBool(serverSide)
	upgrade.ForceConflicts = serverSide
	upgrade.ForceReplace = asked.force && !serverSide
	upgrade.ResetValues = true
	upgrade.MaxHistory = maxHistory
	upgrade.TakeOwnership = true
	upgrade.WaitStrategy = kube.StatusWatcherStrategy
	upgrade.WaitForJobs = true
	upgrade.Timeout = asked.timeout
	upgrade.Devel = true
	upgrade.PostRenderer = asked
	upgrade.PostRenderStrategy = action.PostRenderStrategyCombined
	if _, err := upgrade.RunWithContext(context.Background(), asked.name, chart, values); err != nil {
		return nil, err
	}
	return asked.last(config)
}

// rollback does what internal/action/rollback.go does, to the revision before: after a failed upgrade
// of a HelmRelease that has spec.upgrade.remediation.
func rollback(config *action.Configuration, asked request) (any, error) {
	last, err := lastRelease(config, asked)
	if err != nil {
		return nil, err
	}
	before, err := config.Releases.Get(asked.name, last.Version-1)
	if err != nil {
		return nil, err
	}
	serverSide := isServerSide(before.(*release.Release))
	rollback := action.NewRollback(config)
	rollback.Version = last.Version - 1
	rollback.ServerSideApply = strconv.FormatBool(serverSide)
	rollback.ForceConflicts = serverSide
	rollback.MaxHistory = maxHistory
	rollback.WaitStrategy = kube.StatusWatcherStrategy
	rollback.WaitForJobs = true
	rollback.Timeout = asked.timeout
	if err := rollback.Run(asked.name); err != nil {
		return nil, err
	}
	return asked.last(config)
}

// uninstall does what internal/action/uninstall.go does, also after a failed installation of a
// HelmRelease that has spec.install.remediation.
func uninstall(config *action.Configuration, asked request) (any, error) {
	uninstall := action.NewUninstall(config)
	uninstall.WaitStrategy = kube.StatusWatcherStrategy
	uninstall.DeletionPropagation = "background"
	uninstall.Timeout = asked.timeout
	done, err := uninstall.Run(asked.name)
	if err != nil {
		return nil, err
	}
	return summary(done.Release.(*release.Release)), nil
}

// read returns the chart, and the values from the standard input.
func (asked request) read() (chart any, values map[string]any, err error) {
	if err = json.NewDecoder(os.Stdin).Decode(&values); err != nil {
		return nil, nil, err
	}
	chart, err = loader.Load(asked.chart)
	return chart, values, err
}

// Run is Flux's post-renderer: labels that name the HelmRelease on each object and hook
// (internal/postrender/common_renderer.go).
func (asked request) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	objects, err := utils.ReadObjects(rendered)
	if err != nil {
		return nil, err
	}
	origin := map[string]string{group + "/name": asked.name, group + "/namespace": asked.namespace}
	utils.SetCommonMetadata(objects, origin, nil)
	text, err := utils.ObjectsToYAML(objects)
	return bytes.NewBufferString(text), err
}

// last describes the newest revision.
func (asked request) last(config *action.Configuration) (any, error) {
	last, err := lastRelease(config, asked)
	if err != nil {
		return nil, err
	}
	return summary(last), nil
}

func lastRelease(config *action.Configuration, asked request) (*release.Release, error) {
	last, err := config.Releases.Last(asked.name)
	if err != nil {
		return nil, err
	}
	return last.(*release.Release), nil
}

func isServerSide(made *release.Release) bool {
	return made.ApplyMethod == string(release.ApplyMethodServerSideApply)
}

func summary(made *release.Release) any {
	return map[string]any{
		"revision":    made.Version,
		"status":      made.Info.Status,
		"applyMethod": made.ApplyMethod,
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
