package simulate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// checkLimits returns why a LimitRange refuses a new pod.
func checkLimits(limits *corev1.LimitRange, pod *core.Pod) error {
	return limitranger.PodValidateLimitFunc(limits, pod, nil)
}
