#include "reaper.h"

#include "base/base.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct reaper {
    pid_t worker;
    int worker_status; /* once worker is 0 */
    int owner_fd;      /* pidfd of what CTest started */
    int signal_fd;     /* SIGCHLD */
    int request_fd;    /* the worker asks for a cleaning, and is told how many there were */
};

static int asking_fd = -1; /* the worker's side */

/* ----------------------------------------------------------------------------- children */

/* 0: it is gone. */
static pid_t parent_of(pid_t pid, char *state)
{
    char path[64], text[512];
    const char *behind;
    size_t got = 0;
    int parent = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[got] = '\0';
    behind    = strrchr(text, ')'); /* the name may hold anything, parentheses too */
    if (behind == NULL || sscanf(behind, ") %c %d", state, &parent) != 2) {
        return 0;
    }
    return parent;
}

/* Some living child other than the worker; 0: there is none. */
static pid_t some_child(const struct reaper *reaper)
{
    pid_t found = 0;
    struct dirent *entry;
    DIR *dir = opendir("/proc");

    while (dir != NULL && found == 0 && (entry = readdir(dir)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        char state;

        if (pid > 0 && pid != reaper->worker && parent_of(pid, &state) == getpid() &&
            state != 'Z' && state != 'X') {
            found = pid;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return found;
}

static void tell(pid_t pid)
{
    char path[64], text[256];
    size_t got = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    file = fopen(path, "re");
    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    for (size_t i = 0; i < got; i++) {
        text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : ' ';
    }
    text[got] = '\0';
    printf("# pid %d was left behind, and is ended: %s\n", (int)pid, text);
}

static void reap(struct reaper *reaper)
{
    pid_t pid;
    int status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == reaper->worker) {
            reaper->worker        = 0;
            reaper->worker_status = status;
        }
    }
}

/* Each that is killed may leave children, which are ours then: until there is none. */
static unsigned clean(struct reaper *reaper)
{
    unsigned count = 0;
    pid_t pid;

    reap(reaper);
    while ((pid = some_child(reaper)) != 0) {
        tell(pid);
        if (kill(pid, SIGKILL) != 0 && errno == EPERM) {
            printf("# pid %d cannot be ended: %s\n", (int)pid, strerror(errno));
            break;
        }
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        count++;
    }
    reap(reaper); /* what ended by itself meanwhile */
    (void)fflush(stdout);
    return count;
}

/* ---------------------------------------------------------------------------- processes */

_Noreturn static void reaper_main(struct reaper *reaper, int status_fd)
{
    struct pollfd waiting[] = {{.fd = reaper->owner_fd, .events = POLLIN},
                               {.fd = reaper->signal_fd, .events = POLLIN},
                               {.fd = reaper->request_fd, .events = POLLIN}};
    struct signalfd_siginfo unused;
    unsigned count;

    while (reaper->worker != 0) {
        if (poll(waiting, PL_COUNT(waiting), -1) < 0 && errno != EINTR) {
            break;
        }
        if (waiting[0].revents != 0) {
            break; /* killed: nobody waits for a result */
        }
        if (waiting[1].revents != 0) {
            (void)read(reaper->signal_fd, &unused, sizeof(unused)); /* several may be one */
            reap(reaper);
        }
        if (waiting[2].revents != 0) {
            if (recv(reaper->request_fd, &count, sizeof(count), 0) == sizeof(count)) {
                count = clean(reaper);
                (void)send(reaper->request_fd, &count, sizeof(count), MSG_NOSIGNAL);
            } else {
                waiting[2].fd = -1; /* it became a script, or it ends */
            }
        }
    }
    if (reaper->worker != 0) {
        (void)kill(reaper->worker, SIGKILL);
        (void)waitpid(reaper->worker, NULL, 0);
        reaper->worker = 0;
    }
    (void)clean(reaper);
    (void)write(status_fd, &reaper->worker_status, sizeof(reaper->worker_status));
    _exit(0);
}

/* The process in between, whose end makes the reaper an orphan. */
_Noreturn static void detach(int owner_fd, int status_fd, int (*work)(void *user),
                             void *user)
{
    struct reaper reaper = {.owner_fd = owner_fd};
    int ends[2];
    sigset_t child, before;

    if (setsid() < 0 || fork() != 0) {
        _exit(0);
    }
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    reaper.signal_fd = signalfd(-1, &child, SFD_CLOEXEC);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || reaper.signal_fd < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
        sigprocmask(SIG_BLOCK, &child, &before) != 0) {
        _exit(1);
    }
    reaper.request_fd = ends[0];
    reaper.worker     = fork();
    if (reaper.worker == 0) {
        (void)close(ends[0]);
        (void)close(owner_fd);
        (void)close(status_fd);
        (void)close(reaper.signal_fd);
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        asking_fd = ends[1];
        exit(work(user));
    }
    (void)close(ends[1]);
    (void)signal(SIGPIPE, SIG_IGN); /* who reads what we print may be gone */
    reaper_main(&reaper, status_fd);
}

unsigned reaper_clean(void)
{
    unsigned count = 0;

    if (asking_fd >= 0 && send(asking_fd, &count, sizeof(count), MSG_NOSIGNAL) > 0) {
        (void)recv(asking_fd, &count, sizeof(count), 0);
    }
    return count;
}

int reaper_run(int (*work)(void *user), void *user)
{
    int owner_fd = pl_pidfd_open(getpid());
    int ends[2];
    int status;
    bool told;
    pid_t between;

    (void)fflush(NULL); /* or it is printed once more */
    if (owner_fd < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        perror("reaper");
        return 1;
    }
    between = fork();
    if (between == 0) {
        (void)close(ends[0]);
        detach(owner_fd, ends[1], work, user);
    }
    (void)close(ends[1]);
    (void)close(owner_fd);
    (void)waitpid(between, NULL, 0);
    do {
        told = read(ends[0], &status, sizeof(status)) == sizeof(status);
    } while (!told && errno == EINTR);
    while (read(ends[0], &(char){0}, 1) < 0 && errno == EINTR) { /* until it has ended */
    }
    (void)close(ends[0]);
    if (between < 0 || !told) {
        fprintf(stderr, "the test's reaper ended without a word\n");
        return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
