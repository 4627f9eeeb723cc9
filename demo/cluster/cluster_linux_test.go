package cluster

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
)

// executable writes an executable.
func executable(t *testing.T, path, body string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

func TestCheckBinaries(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{etcd, apiServer, controllers, kwok, scheduler} {
		executable(t, filepath.Join(bin, name), "")
	}
	require.NoError(t, CheckBinaries(Options{BinDir: bin}))

	require.NoError(t, os.Remove(filepath.Join(bin, etcd)))
	require.NoError(t, os.Chmod(filepath.Join(bin, kwok), 0o644))
	err := CheckBinaries(Options{BinDir: bin})
	require.ErrorContains(t, err, filepath.Join(bin, etcd)+" (not found), "+filepath.Join(bin, kwok)+" (not an executable file)")
	require.ErrorContains(t, err, `run "make build controlplane"`)
	require.NotContains(t, err.Error(), "\n")
}

// components are stand-ins for etcd and the API server that run the given scripts.
func components(t *testing.T, store, server string) Options {
	t.Helper()
	opts := Options{BinDir: t.TempDir(), Progress: func(string) {}}
	executable(t, filepath.Join(opts.BinDir, etcd), store)
	executable(t, filepath.Join(opts.BinDir, apiServer), server)
	return opts
}

// leftovers are the demo directories below the directory that takes them.
func leftovers(t *testing.T, tmp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tmp, "zonewise-demo-*"))
	require.NoError(t, err)
	return found
}

func TestAnErrorOfTheStartHasTheLogAndNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	_, _, err := Start(t.Context(), components(t, "echo 'bind: address already in use' >&2; exit 7", "exec sleep 1000"))
	require.ErrorContains(t, err, "etcd")
	require.ErrorContains(t, err, "\n  bind: address already in use")
	require.Empty(t, leftovers(t, tmp))
}

func TestStartRefusesABusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	opts := components(t, "", "")
	opts.Port = l.Addr().(*net.TCPAddr).Port
	_, _, err = Start(t.Context(), opts)
	require.ErrorContains(t, err, "--port: listen tcp 127.0.0.1:")
	require.ErrorContains(t, err, "address already in use: choose another")
}

func TestConnectReplacesTheConnectionAndTheElectionOnly(t *testing.T) {
	out, err := withConnection([]byte("kind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: x}]\nleaderElection: {leaderElect: true}\n"), "/k")
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, yaml.Unmarshal(out, &got))
	require.Equal(t, map[string]any{
		"kind":             "KubeSchedulerConfiguration",
		"profiles":         []any{map[string]any{"schedulerName": "x"}},
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"kubeconfig": "/k", "qps": 500.0, "burst": 1000.0},
	}, got)
	_, err = withConnection([]byte("a: 1\na: 2"), "/k")
	require.ErrorContains(t, err, "scheduler configuration: ")
	shipped, err := config.FS.ReadFile(profile)
	require.NoError(t, err)
	_, err = withConnection(shipped, "/k")
	require.NoError(t, err)
}
