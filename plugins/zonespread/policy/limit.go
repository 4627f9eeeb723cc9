package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// limit is spec.maxPerZone: a number of pods or a percentage of the replicas; the zero limit limits nothing.
type limit struct {
	pods    int64
	percent int64
	down    bool // round a percentage down rather than up
}

func (l limit) String() string {
	if l.percent > 0 {
		return strconv.FormatInt(l.percent, 10) + "%"
	}
	return strconv.FormatInt(l.pods, 10)
}

// parseLimit reads maxPerZone as the CustomResourceDefinition admits it.
func parseLimit(v intstr.IntOrString) (limit, error) {
	if v.Type == intstr.String {
		percent, err := ParsePercent(v.StrVal)
		return limit{percent: percent}, err
	}
	if v.IntVal < 1 || v.IntVal > maxNumber {
		return limit{}, fmt.Errorf("must be a number of pods from 1 to %d, or a percentage", maxNumber)
	}
	return limit{pods: int64(v.IntVal)}, nil
}

var errPercent = errors.New(`must be a percentage from "1%" to "100%", in whole numbers`)

// ParsePercent reads a percentage: a whole number from 1 to 100 without sign or leading zeros, and "%".
func ParsePercent(s string) (int64, error) {
	digits, ok := strings.CutSuffix(s, "%")
	if !ok || digits == "" || len(digits) > 3 || digits[0] == '0' {
		return 0, errPercent
	}
	percent := int64(0)
	for _, d := range []byte(digits) {
		if d < '0' || d > '9' {
			return 0, errPercent
		}
		percent = percent*10 + int64(d-'0')
	}
	if percent > 100 {
		return 0, errPercent
	}
	return percent, nil
}

// of returns the limit in pods for this many replicas, Unlimited without a limit. A percentage never comes
// to less than 1, so that a small workload can start.
func (l limit) of(replicas int64) int64 {
	switch {
	case l.pods > 0:
		return l.pods
	case l.percent > 0 && l.down:
		return max(1, l.percent*replicas/100)
	case l.percent > 0:
		return max(1, (l.percent*replicas+99)/100)
	}
	return Unlimited
}

// quorumCap is the largest number of pods that a zone may hold so that more than half of the replicas are
// elsewhere: replicas - cap > replicas/2. With 1 or 2 replicas there is none; a single pod is let in and
// the policy is reported as infeasible.
func quorumCap(replicas int64) int64 { return max(1, (replicas-1)/2) }

// Cap returns how many pods of one revision a zone may hold at most when so many are desired; ok is false when there is
// no such limit.
func (p *Policy) Cap(zone string, replicas int64) (pods int64, ok bool) {
	_, maxPods := p.weightOf(zone)
	pods, _ = p.capOf(maxPods, replicas)
	return pods, pods < Unlimited
}

// capOf returns the most pods that the zone may hold of one revision, and the rule that says so.
func (p *Policy) capOf(maxPods, replicas int64) (int64, Rule) {
	least, rule := maxPods, MaxPods
	if c := p.perZone.of(replicas); c < least {
		least, rule = c, MaxPerZone
	}
	if p.quorumSafe {
		if c := quorumCap(replicas); c < least {
			least, rule = c, QuorumSafe
		}
	}
	return least, rule
}
