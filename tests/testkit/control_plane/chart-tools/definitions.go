// Package definitions imports something of each module of which only files are wanted: without
// an import `go mod tidy` would drop them from go.mod.
package definitions

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/prometheus-operator/prometheus-operator/example"
)
