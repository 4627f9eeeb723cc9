package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports below those that Linux and others give out by themselves, from 32768 on, for outgoing connections and for listeners without a
// port, and above those of well-known servers.
const (
	firstPort = 15000
	lastPort  = 31999
)

// FreePort returns a port of 127.0.0.1 that is not in use, for a program that is started with a port. Until the program listens, only
// another call of FreePort can give the port away, and that takes one of 17,000 at random.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if last = IsFree(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s: %w", loopback, last)
}

// IsFree returns an error if a program listens on the port of 127.0.0.1. Port 0 is free.
func IsFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
