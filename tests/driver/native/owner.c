/* A live process that stands for one on a card. Its arguments are what /proc/PID/cmdline shows;
 * what it does is told by the environment, where it does not show:
 *
 *   OWNER_RSS_MIB   resident memory          OWNER_CPU       share of a core to burn, 0 to 1
 *   OWNER_DEVICE    a file to hold open      OWNER_STUBBORN  set: SIGTERM and SIGINT are ignored
 *   OWNER_CHILDREN  how many children        OWNER_READY     a file descriptor to close when all
 * this is done
 *
 * It ends when its parent does. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static double number(const char *name)
{
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

/* What ps shows in place of the name of this program. */
static void take_name(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    prctl(PR_SET_NAME, slash ? slash + 1 : argv0);
}

static void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static void become_resident(size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    if (size && mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        exit(1);
}

static void have_children(int count)
{
    pid_t parent = getpid();
    for (int i = 0; i < count; i++)
        if (fork() == 0) {
            die_with_parent();
            if (getppid() != parent)
                exit(0); /* it died before we could ask to be told */
            return;
        }
}

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Burns its share of every tenth of a second. */
static void live(double cpu)
{
    const double period = 0.1;
    const struct timespec rest = {.tv_nsec = (long)((1 - cpu) * period * 1e9)};
    if (cpu <= 0)
        for (;;)
            pause();
    for (;;) {
        double until = cpu_seconds() + cpu * period;
        while (cpu_seconds() < until)
            ;
        nanosleep(&rest, NULL);
    }
}

int main(int count __attribute__((unused)), char **arguments)
{
    die_with_parent();
    take_name(arguments[0]);
    if (getenv("OWNER_STUBBORN")) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
    }
    if (getenv("OWNER_DEVICE") && open(getenv("OWNER_DEVICE"), O_RDONLY) < 0)
        return 1;
    become_resident((size_t)(number("OWNER_RSS_MIB") * 1024 * 1024));
    have_children((int)number("OWNER_CHILDREN"));
    if (getenv("OWNER_READY"))
        close((int)number("OWNER_READY"));
    live(number("OWNER_CPU"));
}
