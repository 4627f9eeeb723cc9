package board

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// topServices is how many services the text lists one by one.
const topServices = 10

// Style chooses how the text looks.
type Style struct {
	// Color marks states and verdicts with terminal colours.
	Color bool
}

// JSON writes the board as one indented JSON object.
func (b *Board) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}

// Text writes the board for people. Lines stay within 80 columns, except that
// violations are never cut.
func (b *Board) Text(w io.Writer, style Style) error {
	p := &page{style: style}
	b.heading(p)
	b.zones(p)
	b.services(p)
	b.gangs(p)
	b.books(p)
	b.phases(p)
	b.verdict(p)
	_, err := io.WriteString(w, p.String())
	return err
}

type page struct {
	strings.Builder
	style Style
}

func (p *page) line(format string, args ...any) {
	p.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	p.WriteByte('\n')
}

// Terminal colours.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p *page) paint(color, text string) string {
	if !p.style.Color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (p *page) title(format string, args ...any) {
	p.line("")
	p.line("%s", p.paint(bold, fmt.Sprintf(format, args...)))
}

func (b *Board) heading(p *page) {
	nodes, pods := 0, 0
	for _, z := range b.Zones {
		nodes += z.Nodes
		pods += z.Pods
	}
	p.line("%s", p.paint(bold, "ZONEWISE CLOSING BOARD"))
	p.line("Kubernetes %s, %d zones, %d nodes, %d pods bound", b.Kubernetes, len(b.Zones), nodes, pods)
}

func (b *Board) zones(p *page) {
	p.title("%-12s %-9s %6s %6s %9s %6s %6s %7s %6s", "Zones", "state", "nodes", "pods", "services", "gangs", "cpu", "memory", "gpu")
	for _, z := range b.Zones {
		state := p.paint(map[string]string{Serving: green, Drained: yellow}[z.State], fmt.Sprintf("%-9s", z.State))
		p.line("  %-10s %s %6d %6d %9d %6d %6s %7s %6s", z.Name, state, z.Nodes, z.Pods, z.ServicePods, z.GangPods,
			percent(z.CPU), percent(z.Memory), percent(z.GPU))
	}
}

func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *share*100)
}

func (b *Board) services(p *page) {
	var all Service
	for _, s := range b.Services {
		all = all.plus(s)
	}
	p.title("Services: %d of them in %d Deployments; %d of %d replicas bound, %d waiting",
		len(b.Services), b.Spread.Deployments, all.Bound, all.Desired, all.Waiting)
	p.line("  %-14s %6s %8s%s %6s %8s", "", "pods", "waiting", b.zoneNames(), "skew", "allowed")
	row := func(s Service) {
		skew := fmt.Sprintf("%6d", s.Skew)
		if s.Skew > s.MaxSkew {
			skew = p.paint(red, skew)
		}
		p.line("  %-14s %6d %8d%s %s %8d", s.Name, s.Bound, s.Waiting, b.perZone(s.Zones), skew, s.MaxSkew)
	}
	top := min(topServices, len(b.Services))
	for _, s := range b.Services[:top] {
		row(s)
	}
	if rest := b.Services[top:]; len(rest) > 0 {
		var sum Service
		for _, s := range rest {
			sum = sum.plus(s)
		}
		sum.Name = fmt.Sprintf("%d others", len(rest))
		row(sum)
	}
	for _, s := range b.Services {
		if s.Reason != "" {
			p.line("  one replica of %s that waits:", s.Name)
			p.quote(s.Reason)
			break
		}
	}
	var parts []string
	for skew, n := range b.Spread.BySkew {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d with skew %d", n, skew))
		}
	}
	p.line("  Deployments over the zones that serve: %s", strings.Join(parts, ", "))
}

// zoneNames and perZone are the columns of the zones.
func (b *Board) zoneNames() string {
	var columns strings.Builder
	for _, z := range b.Zones {
		fmt.Fprintf(&columns, " %8s", z.Name)
	}
	return columns.String()
}

func (b *Board) perZone(counts map[string]int) string {
	var columns strings.Builder
	for _, z := range b.Zones {
		fmt.Fprintf(&columns, " %8d", counts[z.Name])
	}
	return columns.String()
}

// plus adds pods up and keeps the worst skew.
func (s Service) plus(o Service) Service {
	sum := Service{
		Name: s.Name, Desired: s.Desired + o.Desired, Bound: s.Bound + o.Bound, Waiting: s.Waiting + o.Waiting,
		Zones: map[string]int{}, Skew: s.Skew, MaxSkew: s.MaxSkew,
	}
	for _, zones := range []map[string]int{s.Zones, o.Zones} {
		for zone, n := range zones {
			sum.Zones[zone] += n
		}
	}
	if o.Skew >= s.Skew {
		sum.Skew, sum.MaxSkew = o.Skew, o.MaxSkew
	}
	return sum
}

func (b *Board) gangs(p *page) {
	count := map[string]int{}
	for _, g := range b.Gangs {
		count[g.State]++
	}
	reduced := ""
	if count[Reduced] > 0 {
		reduced = fmt.Sprintf(", %d reduced by the drain", count[Reduced])
	}
	p.title("Gangs: %d whole, %d waiting, %d partial%s", count[Whole], count[Waits], count[Partial], reduced)
	p.line("  %-18s %9s %6s  %-8s%s", "", "minMember", "bound", "state", b.zoneNames())
	for _, g := range b.Gangs {
		color := map[string]string{Whole: green, Waits: yellow, Reduced: yellow, Partial: red}[g.State]
		p.line("  %-18s %9d %6d  %s%s", g.Name, g.MinMember, g.Bound, p.paint(color, fmt.Sprintf("%-8s", g.State)), b.perZone(g.Zones))
		if g.Reason != "" {
			p.quote(g.Reason)
		}
	}
}

// quote writes what the scheduler said, in two lines at most.
func (p *page) quote(text string) {
	const width, lines = 74, 2
	line := "\""
	written := 1
	for word := range strings.FieldsSeq(strings.TrimSpace(text) + "\"") {
		if line != "\"" && len([]rune(line))+1+len([]rune(word)) > width {
			if written == lines {
				p.line("    %s", clip(line+" ...", width+4))
				return
			}
			p.line("    %s", line)
			line, written = " "+word, written+1
			continue
		}
		if line != "\"" {
			line += " "
		}
		line += word
	}
	p.line("    %s", clip(line, width+2))
}

func clip(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-3]) + "..."
	}
	return text
}

func (b *Board) books(p *page) {
	p.title("Ledger")
	p.line("  %s pods on %s nodes accounted for, %s assumed left over, drift %s after %s checks",
		value(b.Ledger.Pods), value(b.Ledger.Nodes), value(b.Ledger.Assumed), value(b.Ledger.Drift), value(b.Ledger.Checks))
}

func value(v *float64) string {
	if v == nil {
		return "unknown"
	}
	if *v == math.Trunc(*v) {
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprint(*v)
}

func (b *Board) phases(p *page) {
	p.title("%-34s %8s %8s %8s %10s", "Phases", "time", "bound", "pods/s", "best 1s")
	var total time.Duration
	for _, t := range b.Phases {
		total += t.Duration
		if t.Bound == 0 {
			p.line("  %-32s %8s", t.Name, seconds(t.Duration))
			continue
		}
		p.line("  %-32s %8s %8d %8.1f %10d", t.Name, seconds(t.Duration), t.Bound, t.PerSecond, t.Peak)
	}
	p.line("  %-32s %8s %8d", "together", seconds(total), b.Throughput.Bound)
	p.line("  from created to bound: median %s, 99%% within %s", seconds(b.Throughput.Median), seconds(b.Throughput.P99))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func (b *Board) verdict(p *page) {
	p.title("Checks")
	show := func(c Check, name string) {
		mark := p.paint(green, "ok    ")
		if !c.OK() {
			mark = p.paint(red, "BROKEN")
		}
		p.line("  %s %-42s %s", mark, name, clip(c.Scope, 28))
		for _, v := range c.Violations {
			p.line("         %s", p.paint(red, v))
		}
	}
	for _, c := range b.Checks {
		show(c, c.Name)
	}
	held := 0
	for _, c := range b.WhileLost {
		if c.OK() {
			held++
		} else {
			show(c, "lost zone: "+c.Name)
		}
	}
	if held > 0 {
		p.line("  %s %d of %d held while the zone was lost, too", p.paint(green, "ok    "), held, len(b.WhileLost))
	}
}
