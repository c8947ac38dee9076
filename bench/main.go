// Command bench measures the product beside its baseline in one run and prints
// ratios: five rounds, median and worst. Machines differ and disks are noisy, so
// the ratios are what counts.
//
//	go run ./bench [-rounds 5] [intake|decision]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	rounds := flag.Int("rounds", 5, "how often each thing is measured")
	flag.Parse()
	err := run(ctx, os.Stdout, *rounds, flag.Args())
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, rounds int, which []string) error {
	all := []struct {
		name string
		run  func(context.Context, io.Writer, int) error
	}{{"intake", intake}, {"decision", decision}}
	for _, b := range all {
		if len(which) > 0 && !slices.Contains(which, b.name) {
			continue
		}
		if err := b.run(ctx, out, rounds); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

// median and worst of figures of which more is better.
func spread(v []float64) (median, worst float64) {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2], s[0]
}
