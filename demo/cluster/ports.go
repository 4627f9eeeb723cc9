package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

const loopback = "127.0.0.1"

// freePorts returns n different ports of the loopback address on which nobody
// listens at this moment. All are held open until the last is known, so that
// they differ; after that another process may still take one, and then the
// component that wanted it ends and says so.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, fmt.Errorf("no free port on %s: %w", loopback, err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// checkPort reports why nobody could listen on the port.
func checkPort(port int) error {
	l, err := net.Listen("tcp", address(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d on %s is in use by another process; choose another", port, loopback)
	}
	if err != nil {
		return fmt.Errorf("port %d on %s: %w", port, loopback, err)
	}
	return l.Close()
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
