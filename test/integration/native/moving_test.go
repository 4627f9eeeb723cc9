package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/plugins/permitgate/native"
)

// TestMovingToNativePodGroups applies the files of examples/gangs: gangs of both APIs run beside each other, also with
// one name. Then it shows what docs/native-podgroups.md warns of: with WorkloadWithJob on, the label makes no gang of a
// Job.
func TestMovingToNativePodGroups(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	c := startCluster(t)
	_, err = envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "manifests", "crds", "scheduling.x-k8s.io_podgroups.yaml")}, ErrorIfPathMissing: true,
	})
	require.NoError(t, err)
	labelled, nativeOnes := example(t, root, "job.yaml"), example(t, root, "native.yaml")
	c.run("the examples", guarded, func(c *cluster) {
		withJobs := func(on bool) {
			featuregatetesting.SetFeatureGateDuringTest(c.t, utilfeature.DefaultFeatureGate, features.WorkloadWithJob, on)
		}
		withJobs(false)
		stop := c.startJobController()
		c.apply(labelled)
		c.eventually("the gang of scheduling.x-k8s.io is bound", func() bool { return len(c.boundOf("train-1")) == 2 })
		c.apply(nativeOnes)
		c.eventually("the native gang is bound", func() bool { return len(c.boundOf("train-2")) == 2 })
		c.eventually("its PodGroup says so", func() bool {
			status, _ := c.conditionOf("train", native.ConditionReleased)
			return status == metav1.ConditionTrue
		})
		stop()

		withJobs(true)
		c.startJobController()
		c.apply(strings.NewReplacer("train-2", "train-3", "      schedulingGroup: {podGroupName: train}\n", "", "  template:", "  scheduling: {schedulingPolicy: {gang: {}}}\n  template:").Replace(jobOf(nativeOnes)))
		c.eventually("the Job's own gang is bound", func() bool { return len(c.boundOf("train-3")) == 2 })
		group, err := c.admin.SchedulingV1beta1().PodGroups(c.namespace).Get(c.t.Context(), *c.boundOf("train-3")[0].Spec.SchedulingGroup.PodGroupName, metav1.GetOptions{})
		require.NoError(c.t, err)
		require.EqualValues(c.t, 2, group.Spec.SchedulingPolicy.Gang.MinCount)
		require.Len(c.t, c.boundOf("train-1"), 2, "the old one runs on")

		// Room for one of two: the label would have both wait.
		c.apply(strings.NewReplacer("train-1", "train-4", "500m", "700m", "name: train}", "name: more}", "pod-group: train", "pod-group: more").Replace(labelled))
		c.eventually("one member is bound alone", func() bool { return len(c.boundOf("train-4")) == 1 })
		pod := c.boundOf("train-4")[0]
		require.Equal(c.t, "more", pod.Labels[schedulingv1alpha1.PodGroupLabel])
		group, err = c.admin.SchedulingV1beta1().PodGroups(c.namespace).Get(c.t.Context(), *pod.Spec.SchedulingGroup.PodGroupName, metav1.GetOptions{})
		require.NoError(c.t, err)
		require.NotNil(c.t, group.Spec.SchedulingPolicy.Basic)
	})
}

// example returns the manifests in a file of examples/gangs, which docs/native-podgroups.md names.
func example(t *testing.T, root, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "examples", "gangs", file))
	require.NoError(t, err)
	return string(content)
}

// jobOf returns the last of some manifests.
func jobOf(manifests string) string {
	_, job, _ := strings.Cut(manifests, "\n---\n")
	return job
}

// apply creates the objects of manifests in the test's namespace. A field that the API server does not know is an
// error.
func (c *cluster) apply(manifests string) {
	c.t.Helper()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		obj := &unstructured.Unstructured{}
		require.NoError(c.t, yaml.Unmarshal([]byte(document), &obj.Object))
		obj.SetNamespace(c.namespace)
		require.NoError(c.t, c.objects.Create(c.t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict)))
	}
}

// boundOf lists the bound pods of a Job.
func (c *cluster) boundOf(job string) []v1.Pod {
	return c.podsThat(func(pod *v1.Pod) bool {
		over := metav1.GetControllerOfNoCopy(pod)
		return over != nil && over.Name == job && pod.Spec.NodeName != ""
	})
}
