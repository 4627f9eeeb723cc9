package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// controllerManager is a kube-controller-manager with the controllers behind a Deployment.
type controllerManager struct {
	cmd  *exec.Cmd
	done chan error // has the process's end
}

// needControllers starts the control plane's kube-controller-manager if it does not run yet.
func (w *world) needControllers() {
	w.t.Helper()
	cp := w.cp
	if cp.manager != nil {
		return
	}
	log, err := os.Create(filepath.Join(cp.dir, "kube-controller-manager.log"))
	require.NoError(w.t, err)
	cmd := exec.Command(cp.plane.Program("kube-controller-manager"),
		"--kubeconfig="+cp.plane.Admin,
		"--controllers=deployment-controller,replicaset-controller,disruption-controller,garbage-collector-controller",
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
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
