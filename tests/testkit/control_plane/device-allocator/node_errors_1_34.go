//go:build kubernetes_1_34

package main

// isAboutNode returns whether the scheduler goes on to the next node after this error. This release has no such error.
func isAboutNode(error) bool {
	return false
}
