// A fake clock for programs that are started with LD_PRELOAD. It stands still until the comparison moves it.
//
// The time of day is a number of nanoseconds since 1970 in a file that all programs map (COMPARE_CLOCK). The monotonic clock stays
// real, because event loops and timeouts of connections need a clock that runs.
//
// Tidegate reads the time of day once and then adds the time-stamp counter of the processor, which no library call reads. With
// COMPARE_COUNTER set, the instruction traps and the signal handler returns the number from the file: a tick is a nanosecond.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#define SECOND 1000000000ULL

// At least the size of the vDSO, the code of the kernel that runs in user space.
#define VDSO_BYTES 0x4000

// More readings of the monotonic clock than a calibration takes; see `monotonic`.
#define READINGS_MAX 32

static volatile uint64_t *shared_now;
static uintptr_t vdso;

// Before its first use the counter is calibrated against the monotonic clock. A calibration begins when a thread reads the counter
// for the first time in the process, and ends when that thread reads the time of day. Meanwhile both clocks of that thread advance
// at each reading of the monotonic one, so that the result is the same in each process. They advance to powers of two, so that the
// result is exactly one nanosecond a tick.
static volatile int is_calibrated;
static volatile uint64_t calibration_ticks;
static __thread __attribute__((tls_model("initial-exec"))) int calibrating;
static __thread __attribute__((tls_model("initial-exec"))) uint64_t last_monotonic;

static void fill(struct timespec *to, uint64_t nanos) {
    to->tv_sec = (time_t)(nanos / SECOND);
    to->tv_nsec = (long)(nanos % SECOND);
}

static int monotonic(struct timespec *to) {
    if (calibrating && calibrating < READINGS_MAX) {
        calibration_ticks = 1ULL << (10 + calibrating++);
        fill(to, last_monotonic + calibration_ticks);
        return 0;
    }
    calibrating = 0;
    int result = (int)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, to);
    last_monotonic = (uint64_t)to->tv_sec * SECOND + (uint64_t)to->tv_nsec;
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *to) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        if (!shared_now) break;
        calibrating = 0;
        fill(to, *shared_now);
        return 0;
    case CLOCK_MONOTONIC:
        return monotonic(to);
    }
    return (int)syscall(SYS_clock_gettime, clock, to);
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}

static uint64_t real_counter(void) {
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    uint64_t ticks = __rdtsc();
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    return ticks;
}

static uint64_t counter(uintptr_t reader) {
    // The vDSO computes the real clocks from it.
    if (reader - vdso < VDSO_BYTES) return real_counter();
    if (!is_calibrated) is_calibrated = calibrating = 1;
    return calibration_ticks + *shared_now;
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
    (void)info;
    int saved = errno;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    int is_rdtsc = code[0] == 0x0f && code[1] == 0x31;
    int is_rdtscp = code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9;
    if (is_rdtsc || is_rdtscp) {
        uint64_t ticks = counter((uintptr_t)code);
        registers[REG_RAX] = (greg_t)(ticks & 0xffffffff);
        registers[REG_RDX] = (greg_t)(ticks >> 32);
        if (is_rdtscp) registers[REG_RCX] = 0;
        registers[REG_RIP] += is_rdtsc ? 2 : 3;
    } else {
        // A fault of the program. It occurs again after the return, and ends the program.
        signal(signal_number, SIG_DFL);
    }
    errno = saved;
}

static void fail(const char *why) {
    (void)!write(STDERR_FILENO, why, strlen(why));
    _exit(127);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("COMPARE_CLOCK");
    if (!path) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(uint64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) fail("fake clock: cannot map the file in COMPARE_CLOCK\n");
    close(file);
    shared_now = page;
    if (!getenv("COMPARE_COUNTER")) return;
    vdso = (uintptr_t)getauxval(AT_SYSINFO_EHDR);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSEGV, &action, NULL) || prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) {
        fail("fake clock: this kernel cannot trap reads of the CPU's time stamp counter\n");
    }
}
