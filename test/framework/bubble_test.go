package framework

import (
	"testing"
	"testing/synctest"
)

// inBubble runs a test with a time of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
