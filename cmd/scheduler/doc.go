// Command scheduler is kube-scheduler with the plugins of Zonewise in its registry.
//
// # Contract
//
// It is a drop-in: every flag, endpoint, metric and configuration of kube-scheduler of the same version
// is there, and a profile that names none of the three plugins schedules as upstream does. Two things
// are added around upstream's command. A command line, a configuration or an API server that does not
// let it start ends it with one line on stderr that says what to do, and a non-zero exit status; and a
// process that is told to stop by SIGTERM or SIGINT exits with status 0.
//
// # Non-goals
//
// It has no flag, configuration or code path of its own: what the plugins do is chosen by their args in
// the KubeSchedulerConfiguration.
package main
