package broker

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scrape returns the samples of a server by their names in text form.
func scrape(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("metrics: %d %s", rec.Code, rec.Body)
	}
	samples := map[string]float64{}
	for sc := bufio.NewScanner(rec.Body); sc.Scan(); {
		name, value, ok := strings.Cut(sc.Text(), "} ")
		if ok {
			name += "}"
		} else if name, value, ok = strings.Cut(sc.Text(), " "); !ok {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			samples[name] = v
		}
	}
	return samples
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAdminPort(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Admin = "127.0.0.1:0" })
	url := "http://" + n.adminAddr().String()
	for path, want := range map[string]string{
		"/healthz":                       "ok",
		"/readyz":                        "ready",
		"/metrics":                       "# HELP sekali_appended_bytes_total ",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/heap":              "",
		"/debug/pprof/cmdline":           "",
		"/debug/pprof/symbol":            "num_symbols",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if code, body := get(t, url+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q", path, code, want)
		}
	}
	if code, _ := get(t, url+"/other"); code != http.StatusNotFound {
		t.Errorf("/other: %d, want 404", code)
	}
	n.adminStopping()
	if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
		t.Errorf("/readyz while stopping: %d %s, want 503", code, body)
	}
	n.adminReady()
	if code, _ := get(t, url+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz went back to ready: %d", code)
	}
	if code, _ := get(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while stopping: %d, want 200", code)
	}
}

func TestReadyzBeforeServing(t *testing.T) {
	a, err := openAdmin("127.0.0.1:0", newMetrics())
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+a.ln.Addr().String()+"/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "starting") {
		t.Errorf("/readyz: %d %s, want 503 while starting", code, body)
	}
	if err := a.close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := openAdmin("256.0.0.1:1", newMetrics()); err == nil {
		t.Error("an address that cannot be was listened on")
	}
}

// The series of the metrics page have the names dashboards are built on; each HELP is a sentence, each name ours.
func TestMetricNames(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	families, err := n.metrics.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^(sekali|go|process|promhttp)_[a-z0-9_]+$`)
	for _, f := range families {
		ours := strings.HasPrefix(f.GetName(), "sekali_")
		if !name.MatchString(f.GetName()) || ours && !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: %q", f.GetName(), f.GetHelp())
		}
		counter := f.GetType().String() == "COUNTER"
		if ours && counter != strings.HasSuffix(f.GetName(), "_total") {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
	}
}

func TestMetricsFollowTheWork(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	pid := ask[*kmsg.InitProducerIDResponse](c, initPID(4)).ProducerID
	c.produce("t", 0, pid, 0, 1000, 3)
	c.produce("t", 0, pid, 0, 1000, 3) // a retry
	c.produce("t", 1, -1, -1, 1000, 2)
	got := scrape(t, n.metrics)
	for series, want := range map[string]float64{
		`sekali_appended_batches_total`:                      2,
		`sekali_appended_records_total`:                      5,
		`sekali_duplicates_dropped_total{found="window"}`:    1,
		`sekali_produce_seconds_count`:                       3,
		`sekali_requests_total{api="Produce"}`:               3,
		`sekali_requests_total{api="InitProducerID"}`:        1,
		`sekali_connections`:                                 1,
		`sekali_connections_accepted_total`:                  1,
		`sekali_bad_requests_total{reason="body"}`:           0,
		`sekali_in_flight_bytes`:                             0,
		`sekali_topics`:                                      1,
		`sekali_partitions`:                                  2,
		`sekali_partitions_offline`:                          0,
		`sekali_producers`:                                   1,
		`sekali_log_start_offset{partition="0",topic="t"}`:   0,
		`sekali_high_watermark{partition="0",topic="t"}`:     3,
		`sekali_last_stable_offset{partition="0",topic="t"}`: 3,
		`sekali_log_end_offset{partition="1",topic="t"}`:     2,
		`sekali_recovery_logs`:                               0,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	if got["sekali_appended_bytes_total"] < 2*61 || got["sekali_log_bytes"] != got["sekali_appended_bytes_total"] {
		t.Errorf("%v bytes appended, %v in logs", got["sekali_appended_bytes_total"], got["sekali_log_bytes"])
	}
	if got["sekali_fsync_seconds_count"] < 1 || got["sekali_flushed_bytes_total"] != got["sekali_appended_bytes_total"] {
		t.Errorf("%v flushes of %v bytes", got["sekali_fsync_seconds_count"], got["sekali_flushed_bytes_total"])
	}
}

func TestWatermarksAreBounded(t *testing.T) {
	for _, tc := range []struct {
		most  int
		shown bool
	}{{3, false}, {4, true}, {-1, true}} {
		n := startNode(t, func(c *Config) { c.WatermarksMax = tc.most })
		n.dial().makeTopic("t", 4)
		got := scrape(t, n.metrics)
		if _, shown := got[`sekali_high_watermark{partition="0",topic="t"}`]; shown != tc.shown {
			t.Errorf("4 partitions, at most %d: watermarks shown: %v", tc.most, shown)
		}
		if got["sekali_partitions"] != 4 {
			t.Errorf("%v partitions, want 4", got["sekali_partitions"])
		}
		n.stop()
	}
}
