//go:build !kubernetes_1_34

package main

import (
	"errors"

	"k8s.io/dynamic-resource-allocation/structured"
)

// isAboutNode returns whether the scheduler goes on to the next node after this error.
func isAboutNode(err error) bool {
	return errors.Is(err, structured.ErrFailedAllocationOnNode)
}
