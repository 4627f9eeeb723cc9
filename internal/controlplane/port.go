package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports below those that Linux and others give out by themselves, from 32768 on, for outgoing connections and for
// listeners without a port, and above those of well-known servers.
const (
	firstPort = 15000
	lastPort  = 31999
)

// promised is how long a port is given to nobody else: longer than any program takes until it listens.
const promised = 5 * time.Minute

// FreePort returns a port of 127.0.0.1 that is not in use, for a program that is started with a port. Until the program
// listens nobody can see that the port is taken, so FreePort gives no port to two callers within five minutes, in
// whichever processes they are.
func FreePort() (int, error) {
	return freePort(filepath.Join(os.TempDir(), fmt.Sprintf("zonewise-ports-%d", os.Getuid())), firstPort, lastPort)
}

// freePort returns one of the ports from first to last. In dir there is a file for each port that was given away.
func freePort(dir string, first, last int) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	if err := forgetOld(dir); err != nil {
		return 0, err
	}
	var err error
	for range 100 {
		port := first + rand.IntN(last-first+1)
		var promise *os.File
		promise, err = os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err = errors.Join(promise.Close(), IsFree(port)); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s: %w", loopback, err)
}

// forgetOld removes the files of ports that were given away long ago. Another process may do the same at this moment.
func forgetOld(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err == nil && time.Since(info.ModTime()) > promised {
			err = os.Remove(filepath.Join(dir, file.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// IsFree returns an error if a program listens on the port of 127.0.0.1. Port 0 is free.
func IsFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
