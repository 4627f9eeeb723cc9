// Command scheduler is kube-scheduler with the plugins of Zonewise in its registry.
//
// # Contract
//
// It is a drop-in: every flag, endpoint, metric and configuration of kube-scheduler of the same version is there, and a
// profile that names none of the three plugins schedules as upstream does. It adds three things to upstream's command.
// If the command line, the configuration, the kubeconfig or credentials that the API server refuses prevent the start,
// the process ends with one line on stderr that says what to do, and a non-zero exit status. For an API server that
// does not answer it waits, as upstream does, and says so once. On SIGTERM or SIGINT it exits with status 0.
//
// With the first argument "controller" it is another program, the controller beside the scheduler (package
// cmd/controller), so that one image has both.
//
// # Non-goals
//
// It has no flags and no configuration of its own: the plugins are configured by their args in the
// KubeSchedulerConfiguration.
package main
