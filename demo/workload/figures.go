package workload

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

//go:embed data/services.csv
var servicesCSV []byte

//go:embed data/nodes.csv
var nodesCSV []byte

// Resources are what an instance requests or a node offers.
type Resources struct {
	// MilliCPU is in thousandths of a core.
	MilliCPU int64
	// MemoryMiB is in MiB.
	MemoryMiB int64
	// GPU counts whole devices.
	GPU int64
	// RDMAPercent is in hundredths of one network card.
	RDMAPercent int64
	// DiskGiB is local disk in GiB.
	DiskGiB int64
}

// add returns r plus n times o.
func (r Resources) add(o Resources, n int64) Resources {
	r.MilliCPU += n * o.MilliCPU
	r.MemoryMiB += n * o.MemoryMiB
	r.GPU += n * o.GPU
	r.RDMAPercent += n * o.RDMAPercent
	r.DiskGiB += n * o.DiskGiB
	return r
}

// holds reports whether o fits into r in every dimension.
func (r Resources) holds(o Resources) bool {
	return o.MilliCPU <= r.MilliCPU && o.MemoryMiB <= r.MemoryMiB && o.GPU <= r.GPU &&
		o.RDMAPercent <= r.RDMAPercent && o.DiskGiB <= r.DiskGiB
}

// times returns how many of o fit into r.
func (r Resources) times(o Resources) int {
	n := 0
	for r = r.add(o, -1); r.holds(Resources{}); r = r.add(o, -1) {
		n++
	}
	return n
}

// Role says on which side of a disaggregated service an instance runs.
type Role string

const (
	// CPURole marks an instance without a device (CN in the trace).
	CPURole Role = "cn"
	// GPURole marks an instance with a device (HN in the trace).
	GPURole Role = "hn"
)

// serviceLine is one line of services.csv.
type serviceLine struct {
	app        string
	role       Role
	each       Resources
	maxPerNode int // 0: no limit
	instances  int
}

// nodeLine is one line of nodes.csv.
type nodeLine struct {
	model string
	each  Resources
	nodes int
}

// readTable reads a CSV whose header is exactly header and calls row for each
// record. Errors name the file, the line and the column.
func readTable(name string, r io.Reader, header []string, row func(*record) error) error {
	reader := csv.NewReader(r)
	reader.FieldsPerRecord = len(header)
	reader.ReuseRecord = true
	got, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: header: %w", name, err)
	}
	if !slices.Equal(got, header) {
		return fmt.Errorf("%s: header is %q, want %q", name, got, header)
	}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		line, _ := reader.FieldPos(0)
		rec := &record{header: header, fields: fields}
		if err := errors.Join(row(rec), rec.err); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, line, err)
		}
	}
}

// record reads the columns of one line and keeps the first error.
type record struct {
	header []string
	fields []string
	err    error
}

func (r *record) text(column string) string {
	return r.fields[slices.Index(r.header, column)]
}

// number returns the column times unit, rounded to a whole number.
func (r *record) number(column string, unit float64, lowest int64) int64 {
	text := r.text(column)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || math.Abs(value*unit) > 1<<40 {
		r.fail(fmt.Errorf("%s: %q is not a number in range", column, text))
		return 0
	}
	whole := int64(math.Round(value * unit))
	if whole < lowest {
		r.fail(fmt.Errorf("%s: %q is below %d", column, text, lowest))
	}
	return whole
}

func (r *record) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// parseServices reads services.csv.
func parseServices(r io.Reader) ([]serviceLine, error) {
	header := []string{"app", "role", "cpu", "memory_gib", "gpu", "rdma_percent", "disk_gib", "max_per_node", "instances"}
	var lines []serviceLine
	err := readTable("services.csv", r, header, func(rec *record) error {
		line := serviceLine{
			app: rec.text("app"),
			each: Resources{
				MilliCPU:    rec.number("cpu", 1000, 1),
				MemoryMiB:   rec.number("memory_gib", 1024, 1),
				GPU:         rec.number("gpu", 1, 0),
				RDMAPercent: rec.number("rdma_percent", 1, 0),
				DiskGiB:     rec.number("disk_gib", 1, 0),
			},
			maxPerNode: int(rec.number("max_per_node", 1, -1)),
			instances:  int(rec.number("instances", 1, 1)),
		}
		if line.maxPerNode == -1 {
			line.maxPerNode = 0
		} else if line.maxPerNode == 0 {
			return errors.New("max_per_node: 0 would allow no instance anywhere; -1 stands for no limit")
		}
		switch role := rec.text("role"); role {
		case "CN":
			line.role = CPURole
		case "HN":
			line.role = GPURole
		default:
			return fmt.Errorf("role: %q is neither CN nor HN", role)
		}
		if line.app == "" {
			return errors.New("app: empty")
		}
		lines = append(lines, line)
		return nil
	})
	return lines, err
}

// parseNodes reads nodes.csv.
func parseNodes(r io.Reader) ([]nodeLine, error) {
	header := []string{"gpu_model", "gpus", "cpu_milli", "memory_mib", "nodes"}
	var lines []nodeLine
	err := readTable("nodes.csv", r, header, func(rec *record) error {
		lines = append(lines, nodeLine{
			model: rec.text("gpu_model"),
			each: Resources{
				GPU:       rec.number("gpus", 1, 0),
				MilliCPU:  rec.number("cpu_milli", 1, 1),
				MemoryMiB: rec.number("memory_mib", 1, 1),
			},
			nodes: int(rec.number("nodes", 1, 1)),
		})
		return nil
	})
	return lines, err
}

// figures are the embedded traces, parsed.
type figures struct {
	services []serviceLine
	nodes    []nodeLine
}

func loadFigures() (figures, error) {
	services, err := parseServices(bytes.NewReader(servicesCSV))
	if err != nil {
		return figures{}, err
	}
	nodes, err := parseNodes(bytes.NewReader(nodesCSV))
	if err != nil {
		return figures{}, err
	}
	return figures{services: services, nodes: nodes}, nil
}
