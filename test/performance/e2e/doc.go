// Command e2e measures whole schedulers with upstream's scheduler_perf and prints how ours compares.
//
// "make bench-e2e" runs it. The cases are in cases.yaml, in scheduler_perf's own format, and the variants differ in the
// scheduler's configuration alone. Each variant is a process with an etcd, an API server and a scheduler, on a cluster
// of nodes that exist as objects only.
//
// # Turns
//
// The speed of a shared machine changes within minutes, by more than the differences to be measured. So the processes
// of all variants of a case are there at once and take turns of some seconds: one creates a thousand pods and waits
// until they are bound, while the others are idle. Results are added to a file in the format of Go's benchmarks, which
// benchstat compares, so that a long series can be run in parts.
//
// # Figures
//
//	pods/s                 pods divided by the time from the first one's creation to the last one's binding
//	cpu-ms/pod             CPU time of the process: the scheduler, its API server and clients, not etcd. It says more than the
//	                       throughput on a machine that others use
//	scheduler-cpu-ms/pod   the part of it in the code of the scheduler and its plugins, with what that code called, but without
//	                       garbage collection
//	ours-%cpu              the share of the pack's functions, which a slow or busy machine changes least
//	whole-p50-s, -p99-s    from the creation of a gang's last member to the bind of its last member; of fewer than a hundred
//	                       gangs the 99th percentile is the slowest
//	writes-KIND/pod        requests to write that the API server answered, refused ones too, without the creation of pods and
//	                       PodGroups
//
// # Client limits
//
// scheduler_perf gives the scheduler, and the clients that create nodes and pods, a QPS and a burst of 5,000:
// about ten times what two cores can use. The API server has its defaults.
//
// # Non-goals
//
// It asserts nothing: a shared machine is no judge.
package main
