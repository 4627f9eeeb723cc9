// Package counts imports what a pure core must not.
package counts

import (
	"context"  // want depguard
	"log"      // want depguard
	"log/slog" // want depguard
	"os"       // want depguard
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/names" // want depguard
	"k8s.io/client-go/util/workqueue"    // want depguard
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"                                 // for helpers that ask for a logger
	fwk "k8s.io/kube-scheduler/framework"            // want depguard
	"k8s.io/kubernetes/pkg/util/parsers"             // want depguard
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log" // want depguard
)

// What the imports are used for does not matter.
var (
	_ context.Context
	_ = log.Fatal
	_ slog.Level
	_ = os.Exit
	_ v1.Pod
	_ metav1.Time
	_ = names.SimpleNameGenerator
	_ workqueue.TypedRateLimitingInterface[string]
	_ = corev1.PodPriority
	_ klog.Level
	_ fwk.Code
	_ = parsers.ParseImageName
	_ = ctrllog.Log
)

// Age reads the wall clock.
func Age(t time.Time) time.Duration {
	return time.Since(t) // want forbidigo
}
