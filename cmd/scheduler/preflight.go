package main

import (
	"context"
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
)

const (
	// apiServerGrace is how long an API server may take to answer at the start: what
	// kube-controller-manager gives it.
	apiServerGrace = 10 * time.Second
	// apiServerPoll is the pause between two attempts.
	apiServerPoll = 500 * time.Millisecond
	// apiServerTimeout bounds one attempt, so that a server that accepts and never answers is found out.
	apiServerTimeout = 5 * time.Second
)

// preflight finds out, before upstream builds anything, whether the configuration can be read, whether PermitGate is where it
// belongs, and whether the API server answers. Upstream retries an unreachable API server forever and, at the default
// verbosity, in silence.
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
		if err := checkOrder(cfg); err != nil {
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
	return waitForAPIServer(ctx, config, apiServerGrace)
}

// clientConfig finds the API server where upstream does, without its warnings about the order in which
// it looks, which upstream is going to repeat.
func clientConfig(master, kubeconfig string) (*rest.Config, error) {
	if master == "" && kubeconfig == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return config, nil
		}
	}
	return clientcmd.BuildConfigFromFlags(master, kubeconfig)
}

// waitForAPIServer returns nil as soon as the API server answers a request, and an error that names the
// server when it does not within grace, or when it refuses the credentials.
func waitForAPIServer(ctx context.Context, config *rest.Config, grace time.Duration) error {
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
			// It answers and knows who asks. What the scheduler may do shows when it does it.
			return true, nil
		}
		logger.V(1).Info("The API server does not answer yet", "server", config.Host, "err", last)
		return false, nil
	})
	// The address is named once, and without the query of the probe.
	if request, ok := errors.AsType[*url.Error](last); ok {
		last = request.Err
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(last):
		return fmt.Errorf("the API server %s refuses the credentials: %w; renew the token or certificate in the kubeconfig", config.Host, last)
	default:
		return fmt.Errorf("the API server %s has not answered for %v: %w; check that it runs and that the kubeconfig names its address and certificate authority", config.Host, grace, last)
	}
}
