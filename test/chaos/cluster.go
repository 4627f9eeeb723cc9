package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests/shipped"
	"zonewise.dev/test/internal/audit"
)

// waitTimeout bounds waits that are no promise of the scheduler: far above what any of them takes.
const waitTimeout = 3 * time.Minute

// recorded is what the API server's audit log has: what schedulers ask to be written, with the answers.
var recorded = []auditv1.PolicyRule{
	{Level: auditv1.LevelNone, Resources: []auditv1.GroupResources{{Group: "", Resources: []string{"events"}}, {Group: "events.k8s.io"}}},
	{Level: auditv1.LevelRequestResponse, Users: []string{shipped.SchedulerUser.Name}, Verbs: []string{"create", "update", "patch", "delete", "deletecollection"}},
}

// scheme has the types of a run.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(schedulingv1alpha1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// cluster is a control plane whose processes can be killed and started again.
type cluster struct {
	plane      *controlplane.ControlPlane
	admin      *rest.Config
	client     client.Client // an administrator's, without a limit
	audit      *audit.Log
	kubeconfig string // the scheduler's
	etcd       *process
	apiserver  *process
}

// process is etcd or kube-apiserver. envtest starts it the first time, through a script that notes how.
type process struct {
	script, program string
	log             *os.File

	mu     sync.Mutex // guards what follows
	killed bool       // the one that envtest started
	cmd    *exec.Cmd  // since it was started again, and until it is killed
	done   chan struct{}
}

// newProcess writes the script. fsync stays on: what etcd has confirmed must survive.
func newProcess(assets, dir, name string, log *os.File) (*process, error) {
	p := &process{script: filepath.Join(dir, "start-"+name), program: filepath.Join(assets, name), log: log}
	script := fmt.Sprintf(`#!/bin/sh
for arg do
	shift
	case $arg in --unsafe-no-fsync*) continue ;; esac
	set -- "$@" "$arg"
done
printf '%%s\n' "$@" >%[1]s.args
echo $$ >%[1]s.pid
exec %[2]s "$@"
`, p.script, p.program)
	return p, os.WriteFile(p.script, []byte(script), 0o700)
}

// grace is how long a process has that was asked to end: an API server waits for its watches to end by themselves.
const grace = 2 * time.Second

// end ends the process by a signal, at the latest after its grace, and returns when it is gone.
func (p *process) end(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed && p.cmd == nil {
		return nil
	}
	var pid int
	var gone func() bool
	if p.cmd != nil {
		done := p.done
		pid, gone = p.cmd.Process.Pid, func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
	} else {
		content, err := os.ReadFile(p.script + ".pid")
		if err != nil {
			return err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(content))); err != nil {
			return err
		}
		// envtest waits for it; it is gone when its number is.
		gone = func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return err
	}
	p.killed, p.cmd = true, nil
	start := time.Now()
	for killed := sig == syscall.SIGKILL; !gone(); time.Sleep(10 * time.Millisecond) {
		switch since := time.Since(start); {
		case since > waitTimeout:
			return fmt.Errorf("process %d of %s does not end", pid, p.program)
		case since > grace && !killed:
			killed = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
		}
	}
	return nil
}

// start starts it again, as it was started first.
func (p *process) start() error {
	content, err := os.ReadFile(p.script + ".args")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.Command(p.program, strings.Split(strings.TrimSpace(string(content)), "\n")...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	done, cmd := make(chan struct{}), p.cmd
	p.done = done
	go func() {
		defer close(done)
		_ = cmd.Wait() // it is killed
	}()
	return nil
}

// assets is the directory of the control plane's programs.
func assets(root string) string {
	return cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(root, "bin"))
}

// startCluster starts a control plane with its files in dir, and installs the scheduler's permissions and the custom
// resources.
func startCluster(ctx context.Context, root, dir string) (_ *cluster, err error) {
	log, err := os.Create(filepath.Join(dir, "controlplane.log"))
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	etcd, errEtcd := newProcess(assets(root), dir, "etcd", log)
	server, errServer := newProcess(assets(root), dir, "kube-apiserver", log)
	events, flags, errAudit := audit.New(dir, recorded...)
	if err := errors.Join(errEtcd, errServer, errAudit); err != nil {
		return nil, err
	}
	c.etcd, c.apiserver, c.audit = etcd, server, events
	maps.Copy(flags, nativeFlags)
	// The recorder reads all of etcd's history, and the files as a whole.
	flags["etcd-compaction-interval"], flags["storage-media-type"], flags["audit-log-maxsize"] = "0", "application/json", "100000"
	c.plane, err = controlplane.Start(controlplane.Options{
		Dir: dir, Data: dir, Scheme: scheme, Flags: flags, Etcd: etcd.script, APIServer: server.script, Output: io.Writer(log),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	return c, c.connect(ctx)
}

// connect makes the clients, and installs the scheduler's permissions and the custom resources.
func (c *cluster) connect(ctx context.Context) (err error) {
	c.admin = rest.CopyConfig(c.plane.Config)
	c.admin.QPS, c.admin.Timeout = -1, 10*time.Second
	if c.client, err = client.New(c.admin, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if c.kubeconfig, err = c.plane.Kubeconfig("scheduler", shipped.SchedulerUser); err != nil {
		return err
	}
	for _, dir := range []string{shipped.SchedulerRoles, "components/native-gangs"} {
		if err := shipped.CreatePermissions(ctx, c.client, dir); err != nil {
			return err
		}
	}
	return c.installCRDs(ctx)
}

func (c *cluster) etcdURL() string { return c.plane.Env.ControlPlane.Etcd.URL.String() }

func (c *cluster) stop() error {
	// One that is asked to end waits for etcd, which may be gone.
	err := errors.Join(c.apiserver.end(syscall.SIGKILL), c.etcd.end(syscall.SIGKILL))
	// What envtest started is gone, but envtest may not have noticed yet, and then fails to signal it.
	return errors.Join(err, persist(context.Background(), c.plane.Stop))
}

// definitions are the files of the custom resources.
func definitions() envtest.CRDInstallOptions {
	o := envtest.CRDInstallOptions{Scheme: scheme, MaxTime: waitTimeout, PollInterval: 50 * time.Millisecond}
	for _, name := range []string{"scheduling.x-k8s.io_podgroups", "zonewise.dev_zonereservations", "zonewise.dev_zonespreadpolicies"} {
		crd, err := shipped.Definition("crds/" + name + ".yaml")
		utilruntime.Must(err) // it is compiled in
		o.CRDs = append(o.CRDs, crd)
	}
	return o
}

// installCRDs installs the custom resources and waits until they are served.
func (c *cluster) installCRDs(ctx context.Context) error {
	return persist(ctx, func() error {
		_, err := envtest.InstallCRDs(c.admin, definitions())
		return err
	})
}

// uninstallCRDs deletes them, with all objects of these kinds, and waits until they are gone.
func (c *cluster) uninstallCRDs(ctx context.Context) error {
	o := definitions()
	return persist(ctx, func() error {
		if err := envtest.UninstallCRDs(c.admin, o); err != nil {
			return err
		}
		for _, crd := range o.CRDs {
			err := c.client.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
			if err == nil {
				return fmt.Errorf("%s is still there", crd.Name)
			} else if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// serves waits until the API server is ready.
func (c *cluster) serves(ctx context.Context) error {
	web, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return err
	}
	return persist(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.admin.Host, "/")+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := web.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server is not ready: %s", response.Status)
		}
		return nil
	})
}

// persist tries again until it succeeds, waitTimeout has passed, or ctx ends: the API server may be away.
func persist(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(waitTimeout)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// pause waits, or returns an error when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// createAll creates objects, in order.
func createAll(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
