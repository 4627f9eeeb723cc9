package framework

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bindsSince lists the pods that have been bound since there were so many binds.
func (c *cluster) bindsSince(count int) []string {
	return c.server.Binds()[count:]
}

// timeBind creates a plain pod, and returns how long its bind took. The pod is deleted then.
func (c *cluster) timeBind(name string) time.Duration {
	before, created := c.bindCount(), time.Now()
	c.create(member("", name).Priority(1000))
	for !slices.Contains(c.bindsSince(before), name) {
		time.Sleep(100 * time.Microsecond)
	}
	took := time.Since(created)
	c.delete(name)
	return took
}

// BenchmarkPodsBesideHopelessGangs is what a plain pod waits for its bind on 1,000 nodes of nine pods: alone, beside
// 600 plain pods that a filter refuses and for which there are no victims, and beside 30 gangs of 20 such pods. The
// three take turns of twenty pods, once each pod and gang has been refused: first attempts are free. What
// kube-scheduler's queue does for every pod that waits is in the second already.
//
//	none-us, pods-us, gangs-us   medians
//	pods-ratio, gangs-ratio      of the median beside them and alone
//	pods-p99-ratio, ...          of the 99th percentiles
func BenchmarkPodsBesideHopelessGangs(b *testing.B) {
	const nodes, gangs, members, pods, turn = 1000, 30, 20, 2000, 20
	start := func() *cluster {
		c := newGangCluster(b)
		for i := range nodes {
			name := fmt.Sprintf("node-%d", i)
			c.addNode(name, 10)
			c.bind(name, ported(member("", "high-"+name).Priority(1000)))
			for k := range 8 {
				c.bind(name, member("", fmt.Sprintf("low-%s-%d", name, k)).Priority(1))
			}
		}
		c.start(withArgs(`{}`))
		c.timeBind("first")
		return c
	}
	none, besidePods, besideGangs := start(), start(), start()
	for g := range gangs {
		name := fmt.Sprintf("gang-%d", g)
		besideGangs.groups.set(name, members)
		for i := range members {
			besideGangs.create(ported(member(name, fmt.Sprintf("%s-%d", name, i)).Priority(100)))
			besidePods.create(ported(member("", fmt.Sprintf("waits-%d-%d", g, i)).Priority(100)))
		}
	}
	clusters := []*cluster{none, besidePods, besideGangs}
	refused := func() bool {
		for g := range gangs {
			if besideGangs.recorder.count(fmt.Sprintf("PodGroup gang-%d GangRolledBack", g), "") == 0 {
				return false
			}
			for i := range members {
				if besidePods.recorder.count(fmt.Sprintf("Pod waits-%d-%d FailedScheduling", g, i), "") == 0 {
					return false
				}
			}
		}
		return true
	}
	for n := 0; !refused(); n++ {
		for _, c := range clusters {
			c.timeBind(fmt.Sprintf("warm-%d", n))
		}
	}
	for b.Loop() {
		took := make([][]time.Duration, len(clusters))
		for i := range pods / turn {
			for k, c := range clusters {
				for n := range turn {
					took[k] = append(took[k], c.timeBind(fmt.Sprintf("plain-%d-%d", i, n)))
				}
			}
		}
		us := func(k, percent int) float64 {
			slices.Sort(took[k])
			return float64(took[k][len(took[k])*percent/100].Microseconds())
		}
		b.ReportMetric(us(0, 50), "none-us")
		for k, name := range []string{"pods", "gangs"} {
			b.ReportMetric(us(k+1, 50), name+"-us")
			b.ReportMetric(us(k+1, 50)/us(0, 50), name+"-ratio")
			b.ReportMetric(us(k+1, 99)/us(0, 99), name+"-p99-ratio")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPodsBesideAPreemption has a gang of 20 preempt on 2,000 nodes of 30 pods with 500 PodDisruptionBudgets,
// while plain pods are created one after the other.
//
//	longest-gap-ms   between two of their binds
//	usual-gap-ms     the median
//	whole-ms         from the gang's creation to its last bind
func BenchmarkPodsBesideAPreemption(b *testing.B) {
	const nodes, budgets = 2000, 500
	c := newGangCluster(b)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		c.addNode(name, 30)
		for k := range 30 {
			low := member("", fmt.Sprintf("low-%s-%d", name, k)).Label("app", fmt.Sprint((i*30+k)%budgets))
			c.bind(name, low.Priority(int32(1+(i+k)%5)))
		}
	}
	c.addNode("free", 4)
	for i := range budgets {
		c.createBudget(fmt.Sprint(i), int32(i%3))
	}
	c.start(withArgs(`{"bindRehearsal": "Never"}`))
	for n := 0; b.Loop(); n++ {
		for i := range 50 {
			c.timeBind(fmt.Sprintf("warm-%d-%d", n, i))
		}
		gang, created, before := fmt.Sprintf("urgent-%d", n), time.Now(), c.bindCount()
		c.groups.set(gang, 20)
		for i := range 20 {
			c.create(member(gang, fmt.Sprintf("%s-%d", gang, i), 5).Priority(100))
		}
		var gaps []time.Duration
		whole, last := time.Duration(0), time.Now()
		for i := 0; whole == 0 || i < 200; i++ {
			c.timeBind(fmt.Sprintf("plain-%d-%d", n, i))
			gaps = append(gaps, time.Since(last))
			last = time.Now()
			if whole == 0 && len(c.bindsSince(before)) == i+1+20 {
				whole = time.Since(created)
			}
			require.Less(b, i, 100_000, "the gang preempts in the end")
		}
		slices.Sort(gaps)
		b.ReportMetric(float64(gaps[len(gaps)-1].Microseconds())/1000, "longest-gap-ms")
		b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds())/1000, "usual-gap-ms")
		b.ReportMetric(float64(whole.Microseconds())/1000, "whole-ms")
	}
	b.ReportMetric(0, "ns/op")
}
