// Package upstream runs upstream's own integration tests of pod groups with PermitGate in the scheduler's profile.
//
// The tests are those of the k8s.io/kubernetes module that go.mod requires. They are compiled where they lie, in the
// module cache, under other import paths: an overlay of the go command maps packages below suites/, which are on no
// disk, to their files. The files whose scheduler is to have PermitGate are rewritten on the way: scheduler.New, and
// the options that name profiles and plugins, become those of package withpack.
//
// What fails with the plugin is run without it, too, to tell whose fault it is. Each failure is one of this test unless
// it is listed in differences_test.go with its reason; what is listed and passes is a stale entry.
//
// "make test-all" runs it, and
//
//	go -C test/upstream test -v -timeout 90m .
//
// does, after "make controlplane". -run TestUpstreamSuites/preemption takes one suite, and -tests
// TestCompositePodGroupPreemption behind the package one of upstream's tests; -config zonewise.yaml has all three
// plugins in the profile.
package upstream
