// Threads that keep what they take, each in its arena, beside a function that keeps nothing.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

struct Worker {
    std::vector<std::vector<std::string>> kept;

    __attribute__((noinline)) void take(int step) {  // LEAK
        std::vector<std::string> batch;
        for (int i = 0; i < 100; i++) batch.emplace_back(900, static_cast<char>(step));
        kept.push_back(std::move(batch));
    }

    __attribute__((noinline)) void scratch(int step) {
        std::vector<std::string> batch;
        for (int i = 0; i < 20; i++) batch.emplace_back(900, static_cast<char>(step));
    }

    void run() {
        for (int step = 0; step < 250; step++) {
            take(step);
            scratch(step);
            std::this_thread::sleep_for(std::chrono::milliseconds(12));
        }
        std::this_thread::sleep_for(std::chrono::seconds(2));
    }
};

int main() {
    std::vector<Worker> workers(COUNT);
    std::vector<std::thread> threads;
    for (auto &worker : workers) threads.emplace_back(&Worker::run, &worker);
    for (auto &thread : threads) thread.join();
}
