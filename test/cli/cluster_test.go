package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/apiserver"
)

// namespace is where the pods of the tests are.
const namespace = apiserver.Namespace

// cluster is an API server and the programs.
type cluster struct {
	*apiserver.Server
	zonewise string
	admin    string // a kubeconfig
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: apiserver.Start(t), zonewise: apiserver.Zonewise(t)}
	c.admin = c.Write(t, "admin", c.Env.KubeConfig)
	return c
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, apiserver.Eventually, true, condition), what)
}

// run runs the command, and returns what a shell would see.
func (c *cluster) run(t *testing.T, kubeconfig string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.zonewise, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.Dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String()
	}
	require.NoError(t, err)
	return 0, out.String(), errs.String()
}

// ok runs the command, which has to succeed.
func (c *cluster) ok(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	code, stdout, stderr := c.run(t, kubeconfig, args...)
	require.Zero(t, code, "zonewise %s\n%s", strings.Join(args, " "), stderr)
	return stdout
}

// pod returns a pod of the test's namespace.
func pod(name, cpu string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	return build.Pod(name, cpu, build.Namespace(namespace), func(p *corev1.Pod) {
		p.Labels, p.OwnerReferences = labels, owners
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	})
}

// workload makes what is to be explained: four pods of a Deployment of which a policy admits one in each zone, a
// gang that fits nowhere, and a slot that is held in zone a.
func (c *cluster) workload(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	c.Make(t, &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labels}, Zones: []v1alpha1.ZoneSpreadZone{
			{Name: "a", MaxPods: ptr.To[int32](1)}, {Name: "b", MaxPods: ptr.To[int32](1)}, {Name: "c", MaxPods: ptr.To[int32](1)},
		}},
	}, &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "failover"},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "failover"}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
			Zones:  []v1alpha1.ReservationZone{{Name: "a", Slots: 1}},
		},
	}, &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: "services"},
		Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: labels}}},
			Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)},
		},
	}, &v1alpha1.ZoneRebalance{
		ObjectMeta: metav1.ObjectMeta{Name: "spread"},
		Spec: v1alpha1.ZoneRebalanceSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: labels}}},
		},
	}, &schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "train"}, Spec: schedv1alpha1.PodGroupSpec{MinMember: 2}})

	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("", "500m", nil).Spec}
	template.Spec.TerminationGracePeriodSeconds = nil
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	c.Make(t, d)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web-1", Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": "4"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	c.Make(t, set)
	owner := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for i := range 3 {
		name := fmt.Sprintf("web-%d", i)
		c.Make(t, pod(name, "500m", labels, owner))
		until(t, name+" is bound", func(ctx context.Context) (bool, error) {
			var p corev1.Pod
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p)
			return p.Spec.NodeName != "", err
		})
	}
	c.Make(t, pod("web-3", "500m", labels, owner))
	for i := range 2 {
		c.Make(t, pod(fmt.Sprintf("train-%d", i), "3900m", map[string]string{schedv1alpha1.PodGroupLabel: "train"}))
	}
}
