package zonespread_test

import (
	"testing"

	"k8s.io/kubernetes/pkg/util/parsers" // want depguard
)

// Tests beside the plugins keep to the rule too: those of the framework live in test/.
func TestParse(t *testing.T) {
	t.Log(parsers.ParseImageName("busybox"))
}
