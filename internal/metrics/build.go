package metrics

import (
	"strings"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/version"
)

var buildInfo = NewGaugeVec(&metrics.GaugeOpts{
	Namespace: Namespace, Name: "build_info", StabilityLevel: metrics.ALPHA,
	Help: "Always 1: the version of Zonewise, that of the Kubernetes that it is built from, the commit, and the version of Go.",
}, []string{"version", "kubernetes_version", "revision", "go_version"})

// ExportBuildInfo exports zonewise_build_info. Programs call it when they start; a second call changes nothing.
func ExportBuildInfo() {
	MustRegister(buildInfo)
	info := version.Get()
	kubernetes, zonewise := SplitVersion(info.GitVersion)
	buildInfo.WithLabelValues(zonewise, kubernetes, info.GitCommit, info.GoVersion).Set(1)
}

// SplitVersion takes the version that hack/version.sh stamps, v1.37.2+zonewise.0.1.0, apart: v1.37.2 and 0.1.0. Without
// a stamp the second is "unknown".
func SplitVersion(stamped string) (kubernetes, zonewise string) {
	kubernetes, zonewise, found := strings.Cut(stamped, "+zonewise.")
	if !found {
		return kubernetes, "unknown"
	}
	return kubernetes, zonewise
}
