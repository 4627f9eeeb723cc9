package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/internal/demo/cluster"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == cluster.GuardCommand {
		os.Exit(guard(os.Args[2]))
	}
	os.Exit(execute())
}

// guard is what the demo starts this executable for as well; see package
// cluster. It is no command: nobody calls it by hand.
func guard(dir string) int {
	if err := cluster.RunGuard(os.Stdin, dir); err != nil {
		return exitFailure
	}
	return exitOK
}

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// What goes wrong is told by the commands themselves, in one line: not by the libraries, such as about a response that
	// nobody waits for any more.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return report(os.Stderr, newRoot().ExecuteContext(ctx))
}
