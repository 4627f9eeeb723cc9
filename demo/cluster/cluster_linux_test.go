package cluster

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// executable writes an executable.
func executable(t *testing.T, path, body string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

func TestCheckBinaries(t *testing.T) {
	bin, assets := t.TempDir(), t.TempDir()
	for _, name := range []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler} {
		executable(t, filepath.Join(bin, name), "")
	}
	require.NoError(t, CheckBinaries(Options{BinDir: bin}))

	err := CheckBinaries(Options{BinDir: bin, Assets: assets})
	require.ErrorContains(t, err, filepath.Join(assets, Etcd)+" (not found), "+filepath.Join(assets, APIServer)+" (not found)")
	require.ErrorContains(t, err, `run "make build controlplane"`)
	require.NotContains(t, err.Error(), "\n")

	executable(t, filepath.Join(assets, Etcd), "")
	executable(t, filepath.Join(assets, APIServer), "")
	require.NoError(t, CheckBinaries(Options{BinDir: bin, Assets: assets}))
	require.Equal(t, filepath.Join(bin, Kwok), Options{BinDir: bin, Assets: assets}.binary(Kwok))
	require.Equal(t, filepath.Join(assets, Etcd), Options{BinDir: bin, Assets: assets}.binary(Etcd))

	require.NoError(t, os.Chmod(filepath.Join(bin, Kwok), 0o644))
	require.ErrorContains(t, CheckBinaries(Options{BinDir: bin}), "kwok (not an executable file)")
}

// components are stand-ins for etcd and the API server that run the given scripts.
func components(t *testing.T, etcd, server string) Options {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	opts := Options{BinDir: t.TempDir(), Self: self, Scheme: scheme.Scheme, Progress: func(string) {}}
	executable(t, filepath.Join(opts.BinDir, Etcd), etcd)
	executable(t, filepath.Join(opts.BinDir, APIServer), server)
	return opts
}

// leftovers are the demo directories below the directory that takes them.
func leftovers(t *testing.T, tmp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tmp, "zonewise-demo-*"))
	require.NoError(t, err)
	return found
}

func TestAProgramThatEndsDuringTheStartIsToldWithItsLogAndNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	_, err := Start(t.Context(), components(t, "echo 'bind: address already in use' >&2; exit 7", "exec sleep 1000"))
	require.ErrorContains(t, err, "etcd")
	require.ErrorContains(t, err, "\n  bind: address already in use")
	require.Empty(t, leftovers(t, tmp))
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	// envtest asks each program for its flags first.
	opts := components(t, `[ "$1" = --help ] || { echo $$ >>`+pids+`; exec sleep 1000; }`, "exec sleep 1000")
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, opts)
		done <- err
	}()
	var running []string
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(pids)
		running = strings.Fields(string(content))
		return len(running) == 1
	}, patience, time.Millisecond)
	cancel()
	require.EqualError(t, <-done, "context canceled")
	require.Empty(t, leftovers(t, tmp))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join("/proc", running[0], "exe"))
		return os.IsNotExist(err)
	}, patience, time.Millisecond)
}

func TestStartRefusesABusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	opts := components(t, "", "")
	opts.Port = l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), opts)
	require.ErrorContains(t, err, "on 127.0.0.1 is in use by another process; choose another")
}

func TestAFreePortIsFree(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	require.NoError(t, checkPort(port))
}

func TestGetReportsTheServersAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "forbidden: no\nmore", http.StatusForbidden)
	}))
	defer server.Close()
	_, err := get(t.Context(), server.Client(), server.URL)
	require.EqualError(t, err, "403 Forbidden: forbidden: no")
}

func TestAdaptProfileReplacesTheConnectionOnly(t *testing.T) {
	adapt := func(profile string) map[string]any {
		out, err := adaptProfile([]byte(profile), "/k")
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, yaml.Unmarshal(out, &got))
		return got
	}
	require.Equal(t, map[string]any{
		"kind":             "KubeSchedulerConfiguration",
		"leaderElection":   map[string]any{"leaderElect": true},
		"clientConnection": map[string]any{"kubeconfig": "/k", "qps": 500.0, "burst": 1000.0},
	}, adapt("kind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: true}\n"))
	require.Equal(t, map[string]any{"kubeconfig": "/k", "qps": 900.0, "burst": 1000.0, "contentType": "x"},
		adapt("kind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /other, qps: 900, burst: 10, contentType: x}\n")["clientConnection"])

	for profile, want := range map[string]string{
		"a: 1\na: 2": "scheduler configuration: ",
	} {
		_, err := adaptProfile([]byte(profile), "/k")
		require.ErrorContains(t, err, want)
	}
}

func TestManifestsAreRead(t *testing.T) {
	var names []string
	for _, root := range roles {
		objects, err := readManifests(root)
		require.NoError(t, err)
		for _, o := range objects {
			require.NotEqual(t, "Kustomization", o.GetKind())
			names = append(names, o.GetKind()+" "+o.GetName())
		}
	}
	require.Contains(t, names, "ServiceAccount "+schedulerAccount)
	require.Contains(t, names, "ClusterRole zonewise-scheduler")
	_, err := readManifests("absent")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = decode("bad.yaml", []byte("a: ["))
	require.ErrorContains(t, err, "bad.yaml: ")
}

func TestHostOf(t *testing.T) {
	for _, host := range []string{"https://127.0.0.1:1/", "https://127.0.0.1:1", "127.0.0.1:1"} {
		require.Equal(t, "127.0.0.1:1", hostOf(&rest.Config{Host: host}))
	}
}

// The roles and stages that are embedded are objects.
func TestEmbeddedFilesDecode(t *testing.T) {
	for name, content := range map[string][]byte{"access.yaml": accessYAML, "kwok.yaml": kwokYAML} {
		objects, err := decode(name, content)
		require.NoError(t, err)
		require.Greater(t, len(objects), 3)
		for _, o := range objects {
			require.NotEmpty(t, o.GetKind())
			require.NotEmpty(t, o.GetAPIVersion())
		}
	}
}
