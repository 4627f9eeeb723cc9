package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// script writes an executable.
func script(t *testing.T, path, body string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

func TestFindBinaries(t *testing.T) {
	bin, assets := t.TempDir(), t.TempDir()
	for _, name := range []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler} {
		script(t, filepath.Join(bin, name), "")
	}
	found, err := FindBinaries(bin, "")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(bin, Etcd), found[Etcd])

	_, err = FindBinaries(bin, assets)
	require.ErrorContains(t, err, filepath.Join(assets, Etcd)+" (not found), "+filepath.Join(assets, APIServer)+" (not found)")
	require.ErrorContains(t, err, `run "make build controlplane"`)
	require.NotContains(t, err.Error(), "\n")

	script(t, filepath.Join(assets, Etcd), "")
	script(t, filepath.Join(assets, APIServer), "")
	found, err = FindBinaries(bin, assets)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(assets, APIServer), found[APIServer])
	require.Equal(t, filepath.Join(bin, Kwok), found[Kwok])

	require.NoError(t, os.Chmod(filepath.Join(bin, Kwok), 0o644))
	_, err = FindBinaries(bin, "")
	require.ErrorContains(t, err, "kwok (not an executable file)")
}

// components are stand-ins that run the given scripts.
func components(t *testing.T, scripts map[string]string) Options {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	opts := Options{
		Binaries: Binaries{}, Self: self, Manifests: fstest.MapFS{}, Scheme: scheme.Scheme, Progress: func(string) {},
		Profile: []byte("kind: KubeSchedulerConfiguration\n"),
	}
	for _, name := range []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler} {
		body, ok := scripts[name]
		if !ok {
			body = "exec sleep 1000"
		}
		opts.Binaries[name] = script(t, filepath.Join(dir, name), body)
	}
	return opts
}

// leftovers are the demo directories below the directory that takes them.
func leftovers(t *testing.T, tmp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tmp, "zonewise-demo-*"))
	require.NoError(t, err)
	return found
}

func TestAComponentThatEndsDuringTheStartIsNamedAndNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	_, err := Start(t.Context(), components(t, map[string]string{Etcd: "echo 'bind: address already in use' >&2; exit 7"}))
	var ended *ExitError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, "etcd ended with exit status 7\n  bind: address already in use", err.Error())
	require.Empty(t, leftovers(t, tmp))
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	opts := components(t, map[string]string{
		Etcd:      "echo $$ >>" + pids + "; exec sleep 1000",
		APIServer: "echo $$ >>" + pids + "; exec sleep 1000",
	})
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, opts)
		done <- err
	}()
	var running []string
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(pids)
		running = strings.Fields(string(content))
		return len(running) == 2
	}, 20*time.Second, time.Millisecond)
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "context canceled")
	require.Empty(t, leftovers(t, tmp))
	for _, pid := range running {
		require.NoFileExists(t, filepath.Join("/proc", pid, "exe"))
	}
}

func TestStartRefusesABusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	opts := components(t, nil)
	opts.Port = l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), opts)
	require.ErrorContains(t, err, "on 127.0.0.1 is in use by another process; choose another")
}

func TestFreePortsDiffer(t *testing.T) {
	got, err := freePorts(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range got {
		require.False(t, seen[port])
		seen[port] = true
		require.NoError(t, checkPort(port))
	}
}

// A server with a certificate of the authority is trusted by its clients and
// knows them by theirs.
func TestCertificatesAuthenticateBothSides(t *testing.T) {
	certs, err := newPKI(t.TempDir())
	require.NoError(t, err)
	identity, err := tls.X509KeyPair(certs.scheduler.cert, certs.scheduler.key)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	require.True(t, clients.AppendCertsFromPEM(certs.authority.pem))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{identity}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()

	web := webClient(certs)
	// httptest's own certificate would match; the server's is one of ours.
	body, err := get(t.Context(), web, server.URL)
	require.NoError(t, err)
	require.Equal(t, "zonewise-demo:metrics", string(body))

	for _, file := range []string{certs.authority.file(), certs.admin.keyFile, certs.accountKey} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), "%s holds a secret", file)
	}
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
		"kind: Pod":  "scheduler configuration: kind is Pod, want KubeSchedulerConfiguration",
		"a: 1\na: 2": "scheduler configuration: ",
		"kind: KubeSchedulerConfiguration\nclientConnection: 3": "scheduler configuration: clientConnection is not an object",
	} {
		_, err := adaptProfile([]byte(profile), "/k")
		require.ErrorContains(t, err, want)
	}
}

func TestReadObjects(t *testing.T) {
	files := fstest.MapFS{
		"rbac/role.yaml":          {Data: []byte("# a comment alone\n---\nkind: Role\nmetadata: {name: a}\n---\nkind: Role\nmetadata: {name: b}\n")},
		"rbac/kustomization.yaml": {Data: []byte("kind: Kustomization\n")},
		"rbac/notes.txt":          {Data: []byte("no yaml: [")},
		"crds/x.yaml":             {Data: []byte("kind: CustomResourceDefinition\nmetadata: {name: x}\n")},
	}
	objects, err := readObjects(files, "rbac")
	require.NoError(t, err)
	var names []string
	for _, o := range objects {
		names = append(names, o.GetKind()+" "+o.GetName())
	}
	require.Equal(t, []string{"Role a", "Role b"}, names)

	objects, err = readObjects(files, "crds/x.yaml")
	require.NoError(t, err)
	require.Len(t, objects, 1)
	require.False(t, established(objects[0]))

	_, err = readObjects(files, "absent")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readObjects(fstest.MapFS{"bad.yaml": {Data: []byte("a: [")}}, "bad.yaml")
	require.ErrorContains(t, err, "bad.yaml: ")
}

// The roles and stages that are embedded are objects.
func TestEmbeddedFilesDecode(t *testing.T) {
	for name, content := range map[string][]byte{"access.yaml": accessYAML, "kwok.yaml": kwokYAML} {
		objects, err := decodeObjects(name, content)
		require.NoError(t, err)
		require.Greater(t, len(objects), 3)
		for _, o := range objects {
			require.NotEmpty(t, o.GetKind())
			require.NotEmpty(t, o.GetAPIVersion())
		}
	}
}
