module gpuward.test/controlplane/report-kinds

go 1.26.0

// Only files of these modules are wanted, so go.sum has nothing else, and `go mod tidy` would drop
// both. After a change of a version: `go mod download -x`, with the lines that it asks for.
require (
	github.com/kyverno/kyverno v1.15.2
	github.com/openreports/reports-api v0.2.1
)
