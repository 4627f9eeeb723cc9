package app

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// nameInformers names the scheduler's informers, whose metrics have that name. Upstream: runCommand.
func nameInformers(opts *options.Options) error {
	if opts.InformerName != nil {
		return nil
	}
	name, err := cache.NewInformerName("kube-scheduler")
	opts.InformerName = name
	return err
}
