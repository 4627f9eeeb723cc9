package cluster

import "syscall"

// childAttributes puts a child into a process group of its own, so that a
// Ctrl-C at the terminal reaches the demo alone, and has the kernel kill it
// when the demo dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
