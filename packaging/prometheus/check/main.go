// Checks the packaged files with Prometheus's parsers: the text of a scrape, on standard input;
// alert rules, whose names end in .yml; the expressions of Grafana dashboards, which end in .json.
// It prints the number of items read, and exits with status 1 at the first error.
//
//	curl -s 'http://127.0.0.1:16030/prometheus?description=true' | go run . ../alerts.yml ../../grafana/evenkeel.json
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	must(scrape(os.Stdin))
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		must(err)
		if strings.HasSuffix(file, ".json") {
			must(dashboard(file, text))
		} else {
			must(rules(file, text))
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// scrape parses a text as a scrape does. No two samples may have the same name and labels: the
// parser accepts duplicates, but a scrape would drop one of them.
func scrape(from io.Reader) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	symbols := labels.NewSymbolTable()
	entries, err := textparse.New(text, "text/plain; version=0.0.4", symbols, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	types := 0
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the scrape, after %d samples: %w", len(seen), err)
		}
		switch entry {
		case textparse.EntryType:
			types++
		case textparse.EntrySeries:
			var of labels.Labels
			entries.Labels(&of)
			if seen[of.String()] {
				return fmt.Errorf("a second sample of %s", of.String())
			}
			seen[of.String()] = true
		}
	}
	if len(seen) == 0 {
		return errors.New("the scrape has no sample")
	}
	fmt.Printf("%d samples of %d types\n", len(seen), types)
	return nil
}

func rules(file string, text []byte) error {
	promql := parser.NewParser(parser.Options{})
	groups, failures := rulefmt.Parse(text, false, model.UTF8Validation, promql, slog.Default())
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	number := 0
	for _, group := range groups.Groups {
		number += len(group.Rules)
	}
	fmt.Printf("%s: %d rules\n", file, number)
	return nil
}

func dashboard(file string, text []byte) error {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	promql := parser.NewParser(parser.Options{})
	number := 0
	// The values that replace Grafana's variables.
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "1h")
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			if _, err := promql.ParseExpr(variables.Replace(target.Expr)); err != nil {
				return fmt.Errorf("%s, %s: %s: %w", file, panel.Title, target.Expr, err)
			}
			number++
		}
	}
	fmt.Printf("%s: %d expressions\n", file, number)
	return nil
}
