package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bindingRefused is what the policy of refuseBindings says.
const bindingRefused = "the policy of the test refuses this binding"

// refuseBindings makes the API server refuse to bind the test's pods whose name begins with a prefix. It takes effect
// some time after it returns. The policy ends with the world, or when the function that is returned is called.
func (w *world) refuseBindings(prefix string) (lift func()) {
	w.t.Helper()
	return w.refuse(w.namespace, admissionv1.Create, "pods/binding",
		admissionv1.Validation{Expression: "!object.metadata.name.startsWith('" + prefix + "')", Message: bindingRefused})
}

// refuse makes the API server refuse an operation on a resource of the core group in the test's namespace, unless the
// validation holds. It takes effect some time after it returns. The policy ends with the world, or when the function
// that is returned is called.
func (w *world) refuse(name string, operation admissionv1.OperationType, resource string, unless admissionv1.Validation) (lift func()) {
	w.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: w.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{operation},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionv1.Validation{unless},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	require.NoError(w.t, w.cp.client.Create(w.ctx, policy))
	require.NoError(w.t, w.cp.client.Create(w.ctx, binding))
	lift = func() {
		require.NoError(w.t, client.IgnoreNotFound(w.cp.client.Delete(w.ctx, binding)))
		require.NoError(w.t, client.IgnoreNotFound(w.cp.client.Delete(w.ctx, policy)))
	}
	w.t.Cleanup(lift)
	return lift
}

// controllerManager is a process with the controllers behind a Deployment, the disruption controller and the garbage
// collector.
type controllerManager struct {
	cmd  *exec.Cmd
	done chan error // has the process's end
}

// needControllers starts the controllers that hack/controlplane builds for tests, if they do not run yet.
func (w *world) needControllers() {
	w.t.Helper()
	cp := w.cp
	if cp.manager != nil {
		return
	}
	log, err := os.Create(filepath.Join(cp.dir, "controllers.log"))
	require.NoError(w.t, err)
	cmd := exec.Command(cp.plane.Program("controllers"), "--kubeconfig="+cp.plane.Admin)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(w.t, cmd.Start())
	require.NoError(w.t, log.Close(), "the process has its own handle of the file")
	m := &controllerManager{cmd: cmd, done: make(chan error, 1)}
	go func() { m.done <- cmd.Wait() }()
	cp.manager = m
}

func (m *controllerManager) stop() error {
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-m.done:
		if _, exited := errors.AsType[*exec.ExitError](err); exited {
			return nil // its exit status after a signal says nothing
		}
		return err
	case <-time.After(10 * time.Second):
		return m.cmd.Process.Kill()
	}
}
