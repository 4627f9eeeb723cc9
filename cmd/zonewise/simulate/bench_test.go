package simulate

import (
	"bytes"
	"testing"

	"zonewise.dev/cmd/zonewise/clitest"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/world"
)

// BenchmarkLoseZone loses one of three zones of 5,000 nodes with 150,000 pods: 50,000 pods are displaced and
// placed anew.
func BenchmarkLoseZone(b *testing.B) {
	s := clitest.Large(5000, 150_000)
	b.ReportAllocs()
	for b.Loop() {
		result, err := Run(s, clitest.Now, &Scenario{Zones: []string{"a"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(result.Displaced), "displaced")
		b.ReportMetric(float64(result.Pending), "pending")
	}
}

// BenchmarkLoseZoneOfGangs does the same to 500 gangs of 60 workers beside 120,000 other pods: 20 members of each are planned
// anew.
func BenchmarkLoseZoneOfGangs(b *testing.B) {
	s := clitest.LargeGangs(5000, 120_000, 500, 60)
	b.ReportAllocs()
	for b.Loop() {
		result, err := Run(s, clitest.Now, &Scenario{Zones: []string{"a"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(result.Gangs)), "gangs")
		b.ReportMetric(float64(result.Displaced), "displaced")
		b.ReportMetric(float64(result.Pending), "pending")
	}
}

// BenchmarkWorld builds the world that every command starts from.
func BenchmarkWorld(b *testing.B) {
	s := clitest.Large(5000, 150_000)
	b.ReportAllocs()
	for b.Loop() {
		world.New(s, clitest.Now)
	}
}

// BenchmarkSnapshotFile writes and reads a snapshot of that size.
func BenchmarkSnapshotFile(b *testing.B) {
	s := clitest.Large(5000, 150_000)
	b.ReportAllocs()
	for b.Loop() {
		var file bytes.Buffer
		if err := snapshot.Encode(&file, s); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(file.Len()))
		if _, err := snapshot.Decode(&file); err != nil {
			b.Fatal(err)
		}
	}
}
