package plan_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/permitgate/plan"
)

// BenchmarkMake plans a gang of 500 on 5,000 nodes, each with ten other pods.
func BenchmarkMake(b *testing.B) {
	for name, changes := range map[string][]func(*v1.Pod){
		"plain":               nil,
		"spread over zones":   {spread(v1.LabelTopologyZone, 1, v1.DoNotSchedule)},
		"apart over nodes":    {apart(v1.LabelHostname)},
		"labels of their own": {func(p *v1.Pod) { p.Labels["index"] = p.Name }},
	} {
		for _, size := range []int{20, 500} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				c := newCluster()
				for i := range 5000 {
					n := node(fmt.Sprintf("%c%d", 'a'+i%3, i), 16)
					c.nodes = append(c.nodes, n)
					c.run(n.Name, pods(10, "old"+n.Name, 1, func(p *v1.Pod) { p.Labels["job"] = "other" })...)
				}
				free := &counted{cluster: c}
				r := plan.Request{Members: members(pods(size, "m", 2, changes...)...), Need: size, Cluster: free, Parallel: parallel}
				b.ReportAllocs()
				for b.Loop() {
					if got := plan.Make(r); got.Refusal != nil {
						b.Fatal(got.Refusal)
					}
				}
			})
		}
	}
}

// counted is a cluster that knows what is free, as a scheduler's snapshot does.
type counted struct{ *cluster }

func (c *counted) Free(_ int, names []v1.ResourceName, into []int64) {
	for j, name := range names {
		into[j] = map[v1.ResourceName]int64{v1.ResourceCPU: 6000, v1.ResourceMemory: 64 << 30, v1.ResourcePods: 90}[name]
	}
}

func parallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	wg.Wait()
}
