//go:build !linux

package cluster

import "syscall"

// childAttributes puts a child into a process group of its own, so that a
// Ctrl-C at the terminal reaches the demo alone. When the demo is killed the
// guard ends the child.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
