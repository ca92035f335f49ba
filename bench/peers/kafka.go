// franz-go at a pipeline's work: records of all partitions from their beginning, looking at no more than the value.
//
//	kafka SERVERS TOPIC PARTITIONS MESSAGES
//
// Prints one JSON line: CPU from the first records to the last by message.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	servers, topic := os.Args[1], os.Args[2]
	partitions, left := number(os.Args[3]), number(os.Args[4])
	wanted := map[int32]kgo.Offset{}
	for each := range partitions {
		wanted[int32(each)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: wanted}),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	rows, size := 0, 0
	var began time.Time
	var used float64
	for left > 0 {
		fetches := client.PollFetches(context.Background())
		if failed := fetches.Errors(); len(failed) > 0 {
			panic(fmt.Sprint(failed))
		}
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			size += len(record.Value)
			count++
		})
		left -= count
		if began.IsZero() {
			began, used = time.Now(), cpu()
		} else {
			rows += count
		}
	}
	took, wall := cpu()-used, time.Since(began).Seconds()
	line, _ := json.Marshal(map[string]any{
		"rows": rows, "cpu_us_per_row": took / float64(rows) * 1e6, "rows_per_s": int(float64(rows) / wall),
	})
	fmt.Println(string(line))
}
