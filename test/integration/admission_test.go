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

	"zonewise.dev/test/internal/admission"
)

// bindingRefused is what the policy of refuseBindings says.
const bindingRefused = "the policy of the test refuses this binding"

// refuseBindings makes the API server refuse to bind the test's pods whose name begins with a prefix. It takes effect
// some time after it returns. The policy ends with the world, or when the function that is returned is called.
func (w *world) refuseBindings(prefix string) (lift func()) {
	w.t.Helper()
	return admission.Refuse(w.t, w.cp.client, w.namespace, admissionv1.Create, "pods/binding",
		admissionv1.Validation{Expression: "!object.metadata.name.startsWith('" + prefix + "')", Message: bindingRefused})
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
