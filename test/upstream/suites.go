package upstream

// The suites import what upstream's tests do. Nothing on the disk imports it, so it is named here, for go.mod.
import (
	_ "k8s.io/kubernetes/test/integration/framework" // for go.mod
	_ "k8s.io/kubernetes/test/integration/util"      // for go.mod
)
