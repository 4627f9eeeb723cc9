package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"zonewise.dev/sim/profiles"
)

const (
	// apiServerGrace is how long an API server may take to answer at the start before the log says so: what
	// kube-controller-manager gives it.
	apiServerGrace = 10 * time.Second
	// apiServerPoll is the pause between two attempts.
	apiServerPoll = 500 * time.Millisecond
	// apiServerTimeout limits one attempt, in case a server accepts connections and never answers.
	apiServerTimeout = 5 * time.Second
)

// preflight checks, before upstream builds anything, that the configuration can be read, that the pack's plugins work
// in its profiles, and that the API server takes the credentials. Upstream retries an unreachable API server for ever
// and, at the default verbosity, in silence: preflight says so once, and goes on.
func preflight(cmd *cobra.Command, _ []string) error {
	if flagValue(cmd, "version") != "false" {
		return nil // upstream prints the version and exits
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	kubeconfig := flagValue(cmd, "kubeconfig")
	if file := configFile(cmd); file != "" {
		cfg, err := options.LoadConfigFromFile(klog.FromContext(ctx), file)
		if err != nil {
			return configError{err}
		}
		if err := profiles.Check(cfg); err != nil {
			return configError{err}
		}
		// Upstream ignores --kubeconfig beside --config.
		kubeconfig = cfg.ClientConnection.Kubeconfig
		warnOfProfiles(klog.FromContext(ctx), cfg)
	}
	if flagValue(cmd, "write-config-to") != "" {
		return nil // upstream writes the file and exits, without a request
	}
	config, err := clientConfig(flagValue(cmd, "master"), kubeconfig)
	if err != nil {
		return clientError{err}
	}
	return checkAPIServer(ctx, config, apiServerGrace)
}

// clientConfig finds the API server as upstream does, without upstream's warnings, which would appear
// twice.
func clientConfig(master, kubeconfig string) (*rest.Config, error) {
	if master == "" && kubeconfig == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return config, nil
		}
	}
	return clientcmd.BuildConfigFromFlags(master, kubeconfig)
}

// checkAPIServer returns an error that names the API server for what no waiting mends: it refuses the credentials, or
// its certificate is of an authority that the kubeconfig does not name. It returns nil as soon as a request is
// answered. A server that does not answer within grace is left to upstream, which tries again for ever: a process that
// ended here would wait for its kubelet's backoff, of up to five minutes, after the server is back.
func checkAPIServer(ctx context.Context, config *rest.Config, grace time.Duration) error {
	config = rest.CopyConfig(config)
	config.Timeout = apiServerTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return clientError{err}
	}
	logger := klog.FromContext(ctx)
	var last error
	err = wait.PollUntilContextTimeout(ctx, apiServerPoll, grace, true, func(context.Context) (bool, error) {
		_, last = client.ServerVersion()
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsUnauthorized(last):
			return false, last
		case apierrors.IsForbidden(last):
			// The server answers and accepts the credentials. Permissions are not checked here.
			return true, nil
		}
		logger.V(1).Info("The API server does not answer yet", "server", config.Host, "err", last)
		return false, nil
	})
	if err == nil {
		return nil
	}
	// Name the address once, without the query of the probe.
	if request, ok := errors.AsType[*url.Error](last); ok {
		last = request.Err
	}
	if apierrors.IsUnauthorized(last) {
		return fmt.Errorf("the API server %s refuses the credentials: %w; renew the token or certificate in the kubeconfig", config.Host, last)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](last); unknown {
		return fmt.Errorf("the API server %s is not known: %w; correct the certificate authority in the kubeconfig", config.Host, last)
	}
	logger.Info("Warning: the API server has not answered, and the scheduler waits for it; check that it runs and that the kubeconfig names its address",
		"server", config.Host, "waited", grace, "err", last)
	return nil
}
