package integration

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests/shipped"
	"zonewise.dev/test/internal/audit"
	"zonewise.dev/test/internal/kubelets"
)

// schedulerWrites is what the API server records.
var schedulerWrites = auditv1.PolicyRule{
	Level: auditv1.LevelMetadata, Users: []string{shipped.SchedulerUser.Name},
	Verbs: []string{"create", "update", "patch", "delete", "deletecollection"},
}

// podGroupCRD is the file of the PodGroup API in manifests.
const podGroupCRD = "crds/scheduling.x-k8s.io_podgroups.yaml"

// scheme has the types that the tests use.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(schedulingv1alpha1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// controlPlane is an etcd and a kube-apiserver, with the PodGroup API and the scheduler's permissions
// installed, and what stands in for the kubelets.
type controlPlane struct {
	plane  *controlplane.ControlPlane
	admin  *rest.Config
	client client.Client // reads and writes as an administrator, without a cache
	kube   kubernetes.Interface
	audit  *audit.Log // what schedulers have written
	dir    string     // scratch files that outlive a test
	// schedulerKubeconfig is a file with the credentials of shipped.SchedulerUser.
	schedulerKubeconfig string

	stopKubelets context.CancelFunc
	manager      *controllerManager // nil until a test needs it
}

// repository returns the root of the repository: go test runs in the directory of the package.
func repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.Join(wd, "..", ".."), nil
}

// startControlPlane starts it and waits until it serves.
func startControlPlane() (_ *controlPlane, err error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	c := &controlPlane{}
	if c.dir, err = os.MkdirTemp("", "zonewise-integration-"); err != nil {
		return nil, err
	}
	var flags map[string]string
	if c.audit, flags, err = audit.New(c.dir, schedulerWrites); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	if c.plane, err = controlplane.Start(controlplane.Options{Assets: filepath.Join(root, "bin"), Dir: c.dir, Scheme: scheme, Flags: flags}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	c.admin = c.plane.Config
	if c.schedulerKubeconfig, err = c.plane.Kubeconfig("scheduler", shipped.SchedulerUser); err != nil {
		return nil, err
	}
	if c.client, err = client.New(c.admin, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if c.kube, err = kubernetes.NewForConfig(c.admin); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := shipped.CreatePermissions(ctx, c.client, shipped.SchedulerRoles); err != nil {
		return nil, err
	}
	if err := c.installPodGroups(); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	c.stopKubelets = stop
	return c, kubelets.Run(running, c.kube)
}

func (c *controlPlane) stop() error {
	var errs []error
	if c.manager != nil {
		errs = append(errs, c.manager.stop())
	}
	if c.stopKubelets != nil {
		c.stopKubelets()
	}
	return errors.Join(append(errs, c.plane.Stop(), os.RemoveAll(c.dir))...)
}

// installPodGroups installs the PodGroup API and waits until it is served.
func (c *controlPlane) installPodGroups() error {
	options, err := crdOptions(podGroupCRD)
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(c.admin, options)
	return err
}

// uninstallPodGroups removes it and waits until it is gone.
func (c *controlPlane) uninstallPodGroups() error {
	options, err := crdOptions(podGroupCRD)
	if err != nil {
		return err
	}
	return envtest.UninstallCRDs(c.admin, options)
}
