// Package controlplane starts etcd and kube-apiserver on the loopback interface, for tests and for the demo. It wraps
// controller-runtime's envtest and adds what all control planes here have in common: the paths of the programs, nodes
// without kubelets, and kubeconfigs in files.
//
// It is not part of the product's binaries.
package controlplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is far above what a start takes, for loaded machines.
const startTimeout = 3 * time.Minute

const loopback = "127.0.0.1"

// Options describe a control plane.
type Options struct {
	// Assets is the directory of the programs, unless KUBEBUILDER_ASSETS names another one.
	Assets string
	// Dir is an existing directory for kubeconfigs.
	Dir string
	// Scheme is the scheme of envtest's clients; it may be nil.
	Scheme *runtime.Scheme
	// Flags are flags of kube-apiserver, without dashes; those of the same name are replaced.
	Flags map[string]string
	// Admission are admission plugins to enable in addition to the default ones.
	Admission []string
	// Output, which may be nil, gets what the programs print.
	Output io.Writer
	// Etcd and APIServer are the paths of the programs, instead of those in Assets.
	Etcd, APIServer string
	// Data is an existing directory for data and certificates, which Stop leaves. If it is empty, they are in temporary
	// directories, which Stop removes.
	Data string
	// Port is that of kube-apiserver on 127.0.0.1; 0 takes a free one.
	Port int
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Config is an administrator's.
	Config *rest.Config
	// Admin is the file of an administrator's kubeconfig.
	Admin string
	// Env is envtest's own.
	Env *envtest.Environment
	dir string
}

// Start starts a control plane and returns when it serves. The caller stops it.
func Start(o Options) (*ControlPlane, error) {
	env := &envtest.Environment{
		Scheme: o.Scheme, BinaryAssetsDirectory: o.Assets,
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: startTimeout,
	}
	server := env.ControlPlane.GetAPIServer()
	server.Out, server.Err, server.Path = o.Output, o.Output, o.APIServer
	env.ControlPlane.Etcd = &envtest.Etcd{Path: o.Etcd, Out: o.Output, Err: o.Output}
	if o.Data != "" {
		server.CertDir, env.ControlPlane.Etcd.DataDir = filepath.Join(o.Data, "pki"), filepath.Join(o.Data, "etcd")
		if err := errors.Join(os.MkdirAll(server.CertDir, 0o700), os.MkdirAll(env.ControlPlane.Etcd.DataDir, 0o700)); err != nil {
			return nil, err
		}
	}
	if err := setPorts(server, env.ControlPlane.Etcd, o.Port); err != nil {
		return nil, err
	}
	flags := server.Configure()
	for name, value := range o.Flags {
		flags.Set(name, value)
	}
	flags.Append("enable-admission-plugins", o.Admission...)
	// No kubelet reports nodes ready, and no controller removes the taint of a new node.
	flags.Append("disable-admission-plugins", "TaintNodesByCondition")
	config, err := env.Start()
	noteProgram(server.Path)
	noteProgram(env.ControlPlane.Etcd.Path)
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("no control plane: make controlplane builds it, KUBEBUILDER_ASSETS names another: %w", err),
			env.Stop(),
		)
	}
	// envtest makes this directory for webhooks of its own, of which there are none.
	if err := os.RemoveAll(env.WebhookInstallOptions.LocalServingCertDir); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	c := &ControlPlane{Config: config, Env: env, dir: o.Dir}
	if c.Admin, err = c.write("admin", env.KubeConfig); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	return c, nil
}

// noteProgram tells the go command, which records the files that a test looks at, that a test's result depends on a
// program: it is not taken from the cache once the program has changed.
func noteProgram(path string) { _, _ = os.Stat(path) }

// setPorts takes ports of FreePort, if the API server has none given. envtest would take them from those that the
// kernel may give to an outgoing connection before the program listens.
func setPorts(server *envtest.APIServer, etcd *envtest.Etcd, port int) error {
	clients, err := FreePort()
	if err == nil && port == 0 {
		port, err = FreePort()
	}
	server.SecureServing.ListenAddr = envtest.ListenAddr{Address: loopback, Port: strconv.Itoa(port)}
	etcd.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, strconv.Itoa(clients))}
	etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort(loopback, "0")) // it has no peers
	return err
}

// Stop stops the programs and removes their data.
func (c *ControlPlane) Stop() error { return c.Env.Stop() }

// Program returns the path of a program beside kube-apiserver, such as kubectl.
func (c *ControlPlane) Program(name string) string {
	path := filepath.Join(filepath.Dir(c.Env.ControlPlane.GetAPIServer().Path), name)
	noteProgram(path)
	return path
}

// Kubeconfig makes a user, writes a kubeconfig with the given file name, and returns its path.
func (c *ControlPlane) Kubeconfig(file string, user envtest.User) (string, error) {
	u, err := c.Env.AddUser(user, nil)
	if err != nil {
		return "", err
	}
	content, err := u.KubeConfig()
	if err != nil {
		return "", err
	}
	return c.write(file, content)
}

func (c *ControlPlane) write(name string, content []byte) (string, error) {
	path := filepath.Join(c.dir, name+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
