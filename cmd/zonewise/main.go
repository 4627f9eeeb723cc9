package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	os.Exit(execute())
}

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The commands report errors themselves, in one line; the libraries stay silent.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return report(os.Stderr, newRoot().ExecuteContext(ctx))
}
