// Argo CD's application controller and repository server, with a Redis for both, in one program.
//
//	argo-cd redis ADDRESS
//	argo-cd argocd-repo-server FLAGS…
//	argo-cd argocd-application-controller FLAGS…
//
// The last two are Argo CD's own commands, with their flags and variables.
package main

import (
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	repositories "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

func main() {
	redis := &cobra.Command{
		Use:  "redis",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error { return serveRedis(arguments[0]) },
	}
	root := &cobra.Command{Use: "argo-cd"}
	root.AddCommand(redis, repositories.NewCommand(), controller.NewCommand())
	if root.Execute() != nil {
		os.Exit(1)
	}
}

// serveRedis serves until the process ends. Keys expire only as its clock is moved on.
func serveRedis(address string) error {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(address); err != nil {
		return err
	}
	for range time.Tick(time.Second) {
		server.FastForward(time.Second)
	}
	return nil
}
